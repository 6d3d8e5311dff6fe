"""What every model of the library does."""

import math

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

import steinscope.models
from steinscope import InputError, from_log_prob
from steinscope.densities import WithSample, as_density
from steinscope.models import EBM, ICA, RBM, Gaussian, Glow, UnnormalisedICA
from steinscope.training.checkpoint import load_checkpoint, save_checkpoint

from helpers import generator


def network(seed):
    net = nn.Sequential(nn.Linear(3, 5, device="meta"), nn.Tanh(), nn.Linear(5, 1, device="meta")).to_empty(
        device="cpu"
    )
    for parameter in net.parameters():
        nn.init.normal_(parameter, generator=generator(seed))
    return net


# How to build a model from a seed, and the shape of its points. A new model needs a line here.
MODELS = {
    "Gaussian": (lambda seed: Gaussian(torch.rand(3, generator=generator(seed)), torch.eye(3) + 0.5), (3,)),
    "ICA": (lambda seed: ICA(3, seed=seed), (3,)),
    "ICA, laplace": (lambda seed: ICA(3, "laplace", seed=seed), (3,)),
    "UnnormalisedICA": (lambda seed: UnnormalisedICA(ICA(3, seed=seed)), (3,)),
    "RBM": (lambda seed: RBM.random(3, 4, seed), (3,)),
    "EBM": (lambda seed: EBM.perceptron(3, width=6, seed=seed), (3,)),
    "EBM, one layer": (lambda seed: EBM.perceptron(3, width=6, depth=1, seed=seed), (3,)),
    "EBM, three layers": (lambda seed: EBM.perceptron(3, width=6, depth=3, seed=seed), (3,)),
    "EBM, images": (lambda seed: EBM.perceptron((2, 2), width=6, seed=seed), (2, 2)),
    "EBM, a network of one's own": (lambda seed: EBM(network(seed), 3), (3,)),
    "Glow": (lambda seed: Glow((4, 4), squeezes=(True, False), blocks=2, channels=4, seed=seed), (4, 4)),
}
WITH_SAMPLE = [name for name, (make, _) in MODELS.items() if isinstance(make(0), WithSample)]
# What stands in the face beside models.
PARTS = {"Perceptron"}


def made(name, seed=1, dtype=torch.float64):
    """A model none of whose parameters is zero, in float64, and some points."""
    make, shape = MODELS[name]
    model, source = make(seed).to(dtype), generator(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=source).to(dtype))
    return model, torch.randn(5, *shape, generator=generator(2)).to(dtype)


def test_every_model_is_tested():
    assert {name.partition(",")[0] for name in MODELS} == set(steinscope.models.__all__) - PARTS


@pytest.mark.parametrize("name", MODELS)
def test_the_score_is_the_gradient(name):
    model, x = made(name)
    by_differences = from_log_prob(lambda y: model.log_prob(torch.from_numpy(y)).detach().numpy(), numpy=True).score(x)
    x.requires_grad_()
    (by_autograd,) = torch.autograd.grad(model.log_prob(x).sum(), x)
    score = as_density(model).score(x)
    torch.testing.assert_close(score, by_autograd, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(score, by_differences, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", MODELS)
def test_parameters_go_to_a_file_and_back(name, tmp_path):
    (model, x), (other, _) = made(name), made(name, seed=2)
    assert not torch.equal(as_density(other).score(x), as_density(model).score(x))
    save_checkpoint(tmp_path, 1, model.state_dict())
    other.load_state_dict(load_checkpoint(tmp_path)[1])
    assert torch.equal(as_density(other).score(x), as_density(model).score(x))
    assert torch.equal(other.log_prob(x), model.log_prob(x))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", MODELS)
def test_shapes_and_types(name, dtype):
    model, x = made(name, dtype=dtype)
    for points in (x, x[:1]):
        log_prob, score = model.log_prob(points), as_density(model).score(points)
        assert log_prob.shape == (len(points),) and score.shape == points.shape
        assert log_prob.dtype == score.dtype == dtype
        # Each row on its own, up to the order in which a product adds up.
        torch.testing.assert_close(score, as_density(model).score(x)[: len(points)])


@pytest.mark.parametrize("name", MODELS)
def test_a_seed_fixes_the_model(name):
    ours, same, other = (MODELS[name][0](seed).state_dict() for seed in (1, 1, 2))
    assert all(torch.equal(ours[key], same[key]) for key in ours)
    assert any(not torch.equal(ours[key], other[key]) for key in ours)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", WITH_SAMPLE)
def test_a_seed_fixes_the_samples(name, dtype):
    model, x = made(name, dtype=dtype)
    state = torch.get_rng_state()
    samples = model.sample(7, seed=3)
    assert samples.shape == (7, *x.shape[1:]) and samples.dtype == dtype and not samples.requires_grad
    assert torch.equal(samples, model.sample(7, seed=3)) and not torch.equal(samples, model.sample(7, seed=4))
    assert model.sample(1, seed=3).shape == (1, *x.shape[1:])
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("name", WITH_SAMPLE)
def test_samples_come_from_the_density(name):
    """Stein's identity for the field x: the mean of s·x + d is zero within 5 standard errors; for another model not."""
    model, _ = made(name)
    x = model.sample(20_000, seed=5)
    for density, is_right in ((model, True), (made(name, seed=2)[0], False)):
        values = (as_density(density).score(x).detach() * x).flatten(1).sum(1) + x[0].numel()
        z = float(values.mean() / values.std()) * math.sqrt(len(values))
        assert (abs(z) < 5) == is_right, z


@pytest.mark.parametrize("name", MODELS)
def test_states_are_contiguous_for_safetensors(name, tmp_path):
    model = MODELS[name][0](0)
    save_file(model.state_dict(), tmp_path / "model.safetensors")
    before = model.state_dict()
    model.load_state_dict(load_file(tmp_path / "model.safetensors"))
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


@pytest.mark.parametrize("name", MODELS)
def test_points_of_another_shape_are_refused_and_never_broadcast(name):
    model, x = made(name)
    for points in (x.flatten(1)[:, :1], torch.cat([x, x], 1)):
        for method in ("log_prob", "score"):
            if hasattr(model, method):
                with pytest.raises(InputError, match="^x: "):
                    getattr(model, method)(points)
