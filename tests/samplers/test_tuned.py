import pytest
import torch

from steinscope import InputError
from steinscope.models import EBM, Gaussian
from steinscope.samplers import HMC, MALA, draw_samples, run_chains, tune_step_size


@pytest.mark.parametrize("scale", [0.01, 1.0, 100.0])
@pytest.mark.parametrize("sampler", ["mala", "hmc"])
def test_the_step_size_follows_the_scale_of_the_model(sampler, scale):
    model = Gaussian(torch.zeros(5), std=scale)
    x = model.sample(300, seed=1)
    size, state = tune_step_size(model, x, sampler)
    chains = run_chains({"mala": MALA, "hmc": HMC}[sampler](model, size), state.x, 100, seed=5)
    assert 0.5 < chains.acceptance.mean() < 0.75


def test_samples_of_an_ebm_whose_density_is_known():
    """An EBM with no energy is its Gaussian, started far too wide."""
    model = EBM.perceptron(2, width=4, mean=torch.tensor([3.0, -1.0]), std=torch.tensor([0.5, 2.0]))
    for parameter in model.net.layers[-1].parameters():
        torch.nn.init.zeros_(parameter)
    samples, how = draw_samples(model, 2000, steps=300, seed=2)
    assert abs(samples.mean(0) - [3.0, -1.0]).max() < 0.15
    assert abs(samples.std(0) / [0.5, 2.0] - 1).max() < 0.08
    assert "MALA" in how


def test_a_model_that_can_sample_itself_does():
    model = Gaussian(torch.zeros(2))
    samples, how = draw_samples(model, 5, seed=3)
    assert how == "exact" and (samples == model.sample(5, seed=3).numpy()).all()


def test_bad_step_sizes():
    with pytest.raises(InputError, match="step_size: expected a positive number, got 0"):
        draw_samples(EBM.perceptron(2, width=4), 5, step_size=0)
    with pytest.raises(InputError, match='sampler: expected "mala" or "hmc", got'):
        tune_step_size(Gaussian(torch.zeros(2)), torch.zeros(3, 2), "nuts")
