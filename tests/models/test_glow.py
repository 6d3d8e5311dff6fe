import math

import pytest
import torch

from steinscope import InputError
from steinscope.models import Glow

from helpers import generator


def flow(shape=(4, 4), squeezes=(True, False), blocks=2, channels=8):
    """A flow whose couplings are not zero, so that there is something to test."""
    model = Glow(shape, squeezes=squeezes, blocks=blocks, channels=channels).double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn(parameter.shape, dtype=torch.float64, generator=generator(1)))
    return model


SHAPES = [((4, 4), (True, False)), ((4, 4), (True, True, False)), ((2, 4, 6), (False, True))]


def draw(shape, n=5):
    return torch.randn(n, *shape, dtype=torch.float64, generator=generator(2))


@pytest.mark.parametrize("shape, squeezes", SHAPES)
def test_the_inverse_undoes_the_flow(shape, squeezes):
    model, x = flow(shape, squeezes), draw(shape)
    z, _ = model(x)
    assert z.shape == (5, math.prod(shape))
    torch.testing.assert_close(model.inverse(z), x, atol=1e-10, rtol=0)


@pytest.mark.parametrize("shape, squeezes", SHAPES)
def test_the_log_determinant_is_that_of_the_jacobian(shape, squeezes):
    model, x = flow(shape, squeezes), draw(shape, 1)
    jacobian = torch.autograd.functional.jacobian(lambda flat: model(flat.view(1, *shape))[0][0], x.flatten())
    torch.testing.assert_close(model(x)[1], torch.linalg.slogdet(jacobian).logabsdet)


def test_the_density_is_normalised():
    """Importance sampling from a wide Gaussian: the mean weight is 1 within 5 standard errors."""
    model = flow((2, 2), (True,), 2, 4)
    wide = torch.distributions.Independent(torch.distributions.Normal(torch.zeros(2, 2).double(), 3.0), 2)
    x = 3.0 * draw((2, 2), 200_000)
    weights = (model.log_prob(x) - wide.log_prob(x)).exp().detach()
    assert abs(weights.mean() - 1) < 5 * weights.std() / math.sqrt(len(weights))


def test_the_paper_model_in_single_precision():
    model = Glow()
    x = 3.0 * torch.randn(8, 28, 28, generator=generator(3)) - 2.0
    model.initialise(x)
    with torch.no_grad():
        for stage in model.stages:
            for block in stage:
                block.leave.weight.add_(0.02 * torch.randn(block.leave.weight.shape, generator=generator(4)))
    z, _ = model(x)
    assert (model.inverse(z) - x).abs().max() < 1e-4
    assert model.latent_shapes == [(2, 14, 14), (4, 7, 7), (4, 7, 7)]
    assert [len(stage) for stage in model.stages] == [4, 4, 4]


def test_initialisation_normalises_every_channel():
    model = Glow((8, 8), channels=4)
    model.initialise(5.0 + 3.0 * torch.randn(200, 8, 8, generator=generator(5)))
    z, _ = model(5.0 + 3.0 * torch.randn(200, 8, 8, generator=generator(6)))
    assert abs(z.mean()) < 0.1 and abs(z.std() - 1) < 0.1


def test_samples_have_the_latent_they_were_made_from():
    model = flow()
    x = model.sample(400, seed=0)
    assert torch.equal(x, model.sample(400, seed=0)) and not torch.equal(x, model.sample(400, seed=1))
    z, _ = model(x)
    assert abs(float(z.detach().mean())) < 5 / math.sqrt(z.numel())
    assert abs(float(z.detach().var()) - 1) < 5 * math.sqrt(2 / z.numel())


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: Glow((5, 4)), "squeezes: stage 1 cannot squeeze 5 × 4 pixels"),
        (lambda: Glow((3, 3), squeezes=(False,)), "stage 1 has 1 channels, and coupling needs an even number"),
        (lambda: Glow((4,)), "shape: expected channels, height and width"),
        (
            lambda: Glow((4, 4), squeezes=(True,)).log_prob(torch.zeros(2, 5, 5)),
            r"x: expected images of shape \(4, 4\)",
        ),
    ],
)
def test_bad_input(make, message):
    with pytest.raises(InputError, match=message):
        make()
