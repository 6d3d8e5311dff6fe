from itertools import pairwise

import pytest
import torch

from steinscope import InputError, from_score
from steinscope.models import Gaussian
from steinscope.samplers import HMC, run_chains

from helpers import generator, normal

MODEL = Gaussian(torch.tensor([1.0, -2.0]), torch.tensor([[1.0, 0.5], [0.5, 2.0]]))


def test_small_steps_keep_the_energy():
    """The error of the leapfrog is of second order: with a tenth of the step a hundredth of the rejections."""
    x = normal(4000, 2)
    rough, fine = (run_chains(HMC(MODEL, size, 5), x, 20).acceptance.mean() for size in (0.9, 0.09))
    assert 1 - fine < 0.03 * (1 - rough) and rough < 0.95


def test_trajectories_are_not_periodic():
    """Ten steps of one size, 1.2, take points of a standard normal nearly back to where they were, so that more of them
    were accepted than with 1.1. Where sizes vary, larger ones are accepted less: standard errors are .003."""
    x = normal(300, 5)
    rates = [run_chains(HMC(Gaussian(torch.zeros(5)), size), x, 50).acceptance.mean() for size in (1.0, 1.2, 1.4, 1.6)]
    assert all(less < more - 0.02 for more, less in pairwise(rates))


def test_a_model_without_a_score_is_differentiated():
    x, distribution = (
        normal(5, 2),
        torch.distributions.MultivariateNormal(MODEL.mean.detach(), MODEL.covariance.detach()),
    )
    ours = run_chains(HMC(MODEL, 0.2), x, 5, seed=generator(3)).x
    torch.testing.assert_close(run_chains(HMC(distribution, 0.2), x, 5, seed=generator(3)).x, ours)


def test_errors():
    with pytest.raises(InputError, match="step_size: expected a positive number, got 0"):
        HMC(MODEL, 0.0)
    with pytest.raises(InputError, match="leapfrogs: expected a whole number from 1 on, got 0"):
        HMC(MODEL, 0.1, 0)
    with pytest.raises(InputError, match=r"model: acceptance needs log_prob\(x\), and _ScoreDensity has none"):
        HMC(from_score(lambda x: -x))
