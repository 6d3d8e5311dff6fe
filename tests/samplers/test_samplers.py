import math

import numpy as np
import pytest
import torch

from steinscope import InputError, NonFiniteError, from_score
from steinscope.models import RBM, Gaussian
from steinscope.samplers import HMC, MALA, SGLD, Gibbs, Sampler, TemperedSGLD, run_chains

from helpers import generator

MODEL = Gaussian(torch.tensor([1.0, -2.0]), torch.tensor([[1.0, 0.5], [0.5, 2.0]]))
RBM_MODEL = RBM.random(2, 4, seed=1)

SAMPLERS = {
    "sgld": lambda: SGLD(MODEL, 0.02),
    "tempered": lambda: TemperedSGLD(MODEL, 0.01, math.sqrt(0.02)),
    "mala": lambda: MALA(MODEL, 0.8),
    "hmc": lambda: HMC(MODEL, 0.4, 5),
    "gibbs": lambda: Gibbs(RBM_MODEL),
}


def start(n, shape=(2,)):
    return torch.randn(n, *shape, generator=generator(0))


@pytest.mark.parametrize("name", SAMPLERS)
def test_chains_reach_the_model(name):
    """4000 independent chains: means and covariances within 5 standard errors, plus SGLD's bias of order ε."""
    chains = run_chains(SAMPLERS[name](), start(4000), 600 if "GLD" in name.upper() or name == "tempered" else 150)
    if name == "gibbs":
        exact = RBM_MODEL.sample(200_000)
        mean, covariance = exact.mean(0), torch.cov(exact.T)
    else:
        mean, covariance = MODEL.mean.detach(), MODEL.covariance.detach()
    bias = 0.01 if name in ("sgld", "tempered") else 0.0
    spread = covariance.diagonal().max()
    assert (chains.x.mean(0) - mean).abs().max() < 5 * math.sqrt(spread / 4000) + 0.02 * (name == "gibbs")
    assert (torch.cov(chains.x.T) - covariance).abs().max() < spread * (5 * math.sqrt(2 / 4000) + bias + 0.02)


@pytest.mark.parametrize("name", SAMPLERS)
def test_the_contract(name):
    sampler = SAMPLERS[name]()
    assert isinstance(sampler, Sampler)
    x = start(7)
    chains = run_chains(sampler, x, 10, every=2, burn_in=4, seed=1)
    assert chains.trajectory.shape == (3, 7, 2) and list(chains.steps) == [6, 8, 10]
    assert np.array_equal(chains.trajectory[-1], chains.x.numpy())
    assert np.array_equal(chains.trajectory, run_chains(sampler, x, 10, every=2, burn_in=4, seed=1).trajectory)
    assert not np.array_equal(chains.x.numpy(), run_chains(sampler, x, 10, seed=2).x.numpy())
    assert torch.equal(x, start(7)) and not chains.x.requires_grad
    if name in ("mala", "hmc"):
        assert ((chains.acceptance >= 0) & (chains.acceptance <= 1)).all()
    else:
        assert np.isnan(chains.acceptance).all()


def test_acceptance_makes_any_step_size_exact():
    """At a step size where SGLD has a variance of 1 / (1 - ε/4) = 2, MALA still has variance 1."""
    model = Gaussian(torch.zeros(1))
    rough = run_chains(SGLD(model, 2.0), start(4000, (1,)), 200).x.var()
    exact = run_chains(MALA(model, 2.0), start(4000, (1,)), 200)
    tolerance = 5 * math.sqrt(2 / 4000)
    assert abs(rough - 2.0) < 2 * tolerance and abs(exact.x.var() - 1.0) < tolerance
    assert 0.3 < exact.acceptance.mean() < 0.95


def test_one_chain_goes_on_where_it_ended():
    sampler, random = MALA(MODEL, 0.5), generator(3)
    whole = run_chains(sampler, start(5), 20, seed=generator(3))
    half = run_chains(sampler, start(5), 12, seed=random)
    rest = run_chains(sampler, half.state, 8, seed=random)
    assert torch.equal(rest.x, whole.x)


def test_without_noise_it_climbs():
    x = run_chains(TemperedSGLD(MODEL, 0.3, 0.0), start(5), 200).x
    torch.testing.assert_close(x, MODEL.mean.detach().expand(5, 2), atol=1e-4, rtol=0)


def test_images_are_chains_too():
    model = from_score(lambda x: -x)
    assert run_chains(SGLD(model, 0.1), start(3, (4, 5)), 5).x.shape == (3, 4, 5)


def test_errors():
    with pytest.raises(InputError, match="epsilon: expected a positive number, got 0"):
        SGLD(MODEL, 0.0)
    with pytest.raises(InputError, match=r"model: acceptance needs log_prob\(x\), and _ScoreDensity has none"):
        MALA(from_score(lambda x: -x))
    with pytest.raises(InputError, match="steps: expected a whole number from 1 on, got 0"):
        run_chains(SGLD(MODEL), start(3), 0)
    with pytest.raises(InputError, match="burn_in: expected a whole number from 0 to 4, got 5"):
        run_chains(SGLD(MODEL), start(3), 5, burn_in=5)
    with pytest.raises(NonFiniteError, match="sampling: the chains left all bounds by step 300; take smaller steps"):
        run_chains(SGLD(from_score(lambda x: x**3), 1.0), 10 + start(3), 300)
