import math

import pytest
import torch
from scipy import stats

from steinscope import InputError, from_score
from steinscope.models import Gaussian
from steinscope.samplers import HMC, MALA, SGLD, TemperedSGLD, run_chains

from helpers import normal

MODEL = Gaussian(torch.tensor([1.0, -2.0]), torch.tensor([[1.0, 0.5], [0.5, 2.0]]))


def test_acceptance_makes_any_step_size_exact():
    """At a step size where SGLD has a variance of 1 / (1 - ε/4) = 2, MALA still has variance 1."""
    model = Gaussian(torch.zeros(1))
    rough = run_chains(SGLD(model, 2.0), normal(4000, 1), 200).x.var()
    exact = run_chains(MALA(model, 2.0), normal(4000, 1), 200)
    tolerance = 5 * math.sqrt(2 / 4000)
    assert abs(rough - 2.0) < 2 * tolerance and abs(exact.x.var() - 1.0) < tolerance
    assert 0.3 < exact.acceptance.mean() < 0.95


def test_without_noise_it_climbs():
    x = run_chains(TemperedSGLD(MODEL, 0.3, 0.0), normal(5, 2), 200).x
    torch.testing.assert_close(x, MODEL.mean.detach().expand(5, 2), atol=1e-4, rtol=0)


@pytest.mark.parametrize("sampler", [lambda model: MALA(model, 0.5), lambda model: HMC(model, 0.5, 3)])
def test_models_of_scipy_are_taken_as_they_are(sampler):
    ends = [
        run_chains(sampler(model), normal(20, 1).double(), 10, seed=1).x
        for model in (Gaussian(torch.zeros(1).double()), stats.norm())
    ]
    torch.testing.assert_close(*ends, atol=1e-6, rtol=0)


def test_errors():
    with pytest.raises(InputError, match="epsilon: expected a positive number, got 0"):
        SGLD(MODEL, 0.0)
    with pytest.raises(InputError, match="sigma: expected a number from 0 on, got -1"):
        TemperedSGLD(MODEL, 0.1, -1.0)
    with pytest.raises(InputError, match=r"model: acceptance needs log_prob\(x\), and _ScoreDensity has none"):
        MALA(from_score(lambda x: -x))
