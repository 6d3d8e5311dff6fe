"""Chains of models with a support."""

import numpy as np
import pytest
import torch
from torch.distributions import Beta, Dirichlet, Exponential, Uniform

from steinscope import InputError, from_score
from steinscope.models import EBM
from steinscope.samplers import HMC, MALA, SGLD, TemperedSGLD, draw_samples, run_chains

CHAINS = 1000
# A model, and where its chains start.
MODELS = {
    "beta": (Beta(torch.tensor([0.7]), torch.tensor([0.7])), torch.full((CHAINS, 1), 0.5)),
    "uniform": (Uniform(torch.tensor([-1.0]), torch.tensor([3.0])), torch.zeros(CHAINS, 1)),
    "exponential": (Exponential(torch.tensor([2.0])), torch.ones(CHAINS, 1)),
    "dirichlet": (Dirichlet(torch.tensor([0.7, 1.0, 2.0])), torch.full((CHAINS, 3), 1 / 3)),
}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize(
    "make", [lambda model: MALA(model, 3.0), lambda model: HMC(model, 0.7, 4)], ids=["MALA", "HMC"]
)
def test_chains_stay_inside_and_have_the_right_moments(name, make):
    """1000 independent chains: means and variances within 5 standard errors."""
    model, start = MODELS[name]
    chains = run_chains(make(model), start, 50, every=25)
    x = chains.x.double()
    assert chains.trajectory.shape == (2, *start.shape) and np.array_equal(chains.trajectory[-1], chains.x.numpy())
    assert model.support.check(chains.x).all()
    centred = (x - model.mean).square()
    assert ((x.mean(0) - model.mean).abs() < 5 * (model.variance / CHAINS).sqrt()).all()
    assert ((centred.mean(0) - model.variance).abs() < 5 * centred.std(0) / CHAINS**0.5).all()


def test_chains_go_on_from_their_state():
    model, start = MODELS["beta"]
    sampler = MALA(model, 1.0)
    half = run_chains(sampler, start, 3)
    assert torch.equal(half.x, half.state.original) and not torch.equal(half.x, half.state.x)
    assert model.support.check(run_chains(sampler, half.state, 3).x).all()


def test_a_score_and_a_support_are_enough_for_langevin_dynamics():
    model = from_score(lambda x: -torch.ones_like(x), support="positive")
    for sampler in (
        SGLD(model, 0.1),
        TemperedSGLD(from_score(lambda x: -torch.ones_like(x)), 0.05, 0.1**0.5, "positive"),
    ):
        x = run_chains(sampler, torch.ones(CHAINS, 1), 200).x
        # The error of a finite step is of the order of ε.
        assert x.min() > 0 and x.mean() == pytest.approx(1.0, abs=0.15)


def test_chains_that_start_outside_are_refused():
    with pytest.raises(InputError, match=r"x: row 0 holds -1, outside of the support \(0, inf\)"):
        run_chains(MALA(MODELS["exponential"][0]), torch.tensor([[-1.0]]), 5)


def test_samples_of_an_ebm_with_a_support():
    """An EBM with no energy, on the positive numbers, is half of its Gaussian."""
    model = EBM.perceptron(1, width=4, std=2.0)
    for parameter in model.net.layers[-1].parameters():
        torch.nn.init.zeros_(parameter)
    model.support = "positive"
    samples, _ = draw_samples(model, CHAINS, steps=100, seed=2)
    assert samples.min() > 0
    expected, std = 2 * (2 / np.pi) ** 0.5, 2 * (1 - 2 / np.pi) ** 0.5
    assert samples.mean() == pytest.approx(expected, abs=5 * std / CHAINS**0.5)
