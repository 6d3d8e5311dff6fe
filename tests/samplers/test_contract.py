"""What every sampler of the library does."""

import inspect
import math

import numpy as np
import pytest
import torch

import steinscope.samplers
from steinscope.models import RBM, Gaussian
from steinscope.samplers import HMC, MALA, SGLD, Gibbs, Sampler, TemperedSGLD, run_chains

from helpers import normal

MODEL = Gaussian(torch.tensor([1.0, -2.0]), torch.tensor([[1.0, 0.5], [0.5, 2.0]]))
HIDDEN = RBM.random(2, 4, seed=1)
EPSILON, SIGMA = 0.1, 0.3


def langevin(epsilon, sigma):
    """The covariance at which x + ε s(x) + σ noise stays: C = (I - εP) C (I - εP) + σ² I, with P the precision."""
    precision = torch.linalg.inv(MODEL.covariance.detach().double())
    return sigma**2 * torch.linalg.inv(2 * epsilon * precision - epsilon**2 * precision @ precision)


def enumerated():
    """Mean and covariance of an RBM: the first two derivatives of its log-normaliser in the visible offsets."""
    rbm = RBM(*(getattr(HIDDEN, name).detach().double() for name in ("weights", "visible", "hidden")))
    (mean,) = torch.autograd.grad(rbm.log_normaliser(), rbm.visible, create_graph=True)
    rows = [torch.autograd.grad(part, rbm.visible, retain_graph=True)[0] for part in mean]
    return mean.detach(), torch.stack(rows)


# A sampler, and the mean and covariance that its chains tend to: exactly, with the error of a finite step.
# A new sampler needs a line here.
SAMPLERS = {
    "SGLD": lambda: (SGLD(MODEL, 2 * EPSILON), MODEL.mean, langevin(EPSILON, math.sqrt(2 * EPSILON))),
    "TemperedSGLD": lambda: (TemperedSGLD(MODEL, EPSILON, SIGMA), MODEL.mean, langevin(EPSILON, SIGMA)),
    "MALA": lambda: (MALA(MODEL, 0.8), MODEL.mean, MODEL.covariance),
    "HMC": lambda: (HMC(MODEL, 0.4, 5), MODEL.mean, MODEL.covariance),
    "Gibbs": lambda: (Gibbs(HIDDEN), *enumerated()),
}


def test_every_sampler_is_tested():
    public = [getattr(steinscope.samplers, name) for name in steinscope.samplers.__all__]
    kinds = {kind.__name__ for kind in public if inspect.isclass(kind) and issubclass(kind, Sampler)}
    assert kinds - {"Sampler"} == set(SAMPLERS)


@pytest.mark.parametrize("name", SAMPLERS)
def test_chains_have_the_moments_that_they_should_have(name):
    """4000 independent chains: means and covariances within 5 standard errors.

    After 200 steps the slowest of them has forgotten all but (1 - 0.1 · 0.45)^200 < 10^-4 of where it started.
    """
    sampler, mean, covariance = SAMPLERS[name]()
    x = run_chains(sampler, normal(4000, 2), 200).x.double()
    centred = x - mean.detach()
    assert (centred.mean(0).abs() < 5 * x.std(0) / math.sqrt(4000)).all()
    products = centred[:, :, None] * centred[:, None, :]
    error = (products.mean(0) - covariance.detach()).abs()
    assert (error < 5 * products.std(0) / math.sqrt(4000)).all()


@pytest.mark.parametrize("name", SAMPLERS)
def test_the_contract(name):
    sampler = SAMPLERS[name]()[0]
    assert isinstance(sampler, Sampler)
    x = normal(7, 2)
    chains = run_chains(sampler, x, 10, every=2, burn_in=4, seed=1)
    assert chains.trajectory.shape == (3, 7, 2) and list(chains.steps) == [6, 8, 10]
    assert np.array_equal(chains.trajectory[-1], chains.x.numpy())
    assert np.array_equal(chains.trajectory, run_chains(sampler, x, 10, every=2, burn_in=4, seed=1).trajectory)
    assert not np.array_equal(chains.x.numpy(), run_chains(sampler, x, 10, seed=2).x.numpy())
    assert torch.equal(x, normal(7, 2)) and not chains.x.requires_grad
    if name in ("MALA", "HMC"):
        assert ((chains.acceptance >= 0) & (chains.acceptance <= 1)).all()
    else:
        assert np.isnan(chains.acceptance).all()


@pytest.mark.parametrize("name", SAMPLERS)
def test_one_chain_and_no_gradients(name):
    """One chain is as good as many, and the global random state and the model are left alone."""
    sampler, state = SAMPLERS[name]()[0], torch.get_rng_state()
    chains = run_chains(sampler, normal(1, 2), 3)
    assert chains.x.shape == (1, 2) and chains.acceptance.shape == (1,)
    assert torch.equal(torch.get_rng_state(), state)
    assert all(parameter.grad is None for model in (MODEL, HIDDEN) for parameter in model.parameters())
