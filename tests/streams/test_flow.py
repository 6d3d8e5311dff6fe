"""E-values of points, against integrals and closed forms."""

import math

import pytest
import torch

from steinscope import from_log_prob, from_score
from steinscope.metric import Metric
from steinscope.models import Gaussian
from steinscope.modes.surface import Surface
from steinscope.portfolio import AdditiveLearner, KernelLearner, LinearLearner, MeanLearner
from steinscope.streams.flow import log_evalues

from helpers import normal, sample, student

LEARNERS = [MeanLearner, LinearLearner, AdditiveLearner, KernelLearner]


def surface(model, dim):
    like = torch.zeros(dim, dtype=torch.float64)
    return Surface(model, Metric(like, like + 1), (dim,), torch.float64, torch.device("cpu"))


def fitted(kind, x, score):
    learner = kind()
    learner.begin(x, score)
    learner.observe(x, score)
    learner.refit()
    return learner


@pytest.mark.parametrize("kind", LEARNERS)
def test_the_mean_under_the_model_is_one(kind):
    """By a fine grid over the line, whatever the critic has learned and however much it bets."""
    x = 0.5 + 1.3 * normal(200, 1).double()
    learner, model = fitted(kind, x, -x), Gaussian(torch.zeros(1).double())
    grid = torch.linspace(-12, 12, 20_001, dtype=torch.float64)[:, None]
    density = (-0.5 * grid[:, 0] ** 2).exp() / math.sqrt(2 * math.pi)
    scale = float(learner.values(x, -x).square().mean().sqrt())
    for effect in (0.05, 0.5):
        gains = log_evalues(learner, surface(model, 1), grid, -grid, effect / scale).exp()
        # The rule of rectangles is exact here but for the paths, whose error is that of the Runge-Kutta steps.
        assert float((gains * density).sum() * 24 / 20_000) == pytest.approx(1.0, abs=1e-5)


def test_the_flow_of_a_linear_critic_is_a_matrix_exponential():
    x = normal(300, 3).double() @ torch.tensor([[1.0, 0.4, 0.0], [0.0, 1.2, 0.3], [0.2, 0.0, 0.7]]).double()
    learner, time = fitted(LinearLearner, x, -x), 0.1
    # z' = A (z - c) + b has the fixed point c - A⁻¹b.
    middle = learner.centre - torch.linalg.solve(learner.matrix, learner.offset)
    ends = (x - middle) @ torch.linalg.matrix_exp(time * learner.matrix).T + middle
    expected = 0.5 * (x.square().sum(1) - ends.square().sum(1)) + time * learner.matrix.trace()
    gains = log_evalues(learner, surface(Gaussian(torch.zeros(3).double()), 3), x, -x, time)
    assert torch.allclose(gains, expected, atol=1e-8)


@pytest.mark.parametrize("kind", LEARNERS)
def test_for_small_bets_it_is_the_stein_value(kind):
    x = 0.3 + normal(100, 4).double()
    learner, model = fitted(kind, x, -x), Gaussian(torch.zeros(4).double())
    values = learner.values(x, -x)
    time = 1e-5 / float(values.abs().max())
    gains = log_evalues(learner, surface(model, 4), x, -x, time)
    assert torch.allclose(gains / time, values, rtol=1e-3, atol=1e-3 * float(values.abs().max()))


@pytest.mark.parametrize("kind", LEARNERS)
def test_scores_along_the_path_give_the_same_as_the_density(kind):
    distribution = student(3)
    x = 1.2 * sample(distribution, 200).double()
    known = Gaussian(torch.zeros(3).double())
    learner = fitted(kind, x, -x)
    scale = float(learner.values(x, -x).square().mean().sqrt())
    by_density = log_evalues(learner, surface(known, 3), x, -x, 0.3 / scale)
    by_score = log_evalues(learner, surface(from_score(lambda x: -x), 3), x, -x, 0.3 / scale)
    assert torch.allclose(by_density, by_score, atol=1e-4)


def test_a_point_that_leaves_the_support_loses():
    class Positive:
        def log_prob(self, x):
            return torch.where(x[:, 0] > 0, -x[:, 0], -torch.inf)

    x = torch.tensor([[0.1], [3.0]]).double()
    learner = fitted(MeanLearner, x, -torch.ones_like(x))
    gains = log_evalues(learner, surface(Positive(), 1), x, -torch.ones_like(x), 1.0)
    assert gains[0] == -math.inf and gains[1] == pytest.approx(1.0)


def refused(x):
    if bool((x <= 0).any()):
        raise ValueError("outside of the support")
    return -torch.ones_like(x)


@pytest.mark.parametrize("score", [lambda x: torch.where(x > 0, -1.0, torch.nan).to(x), refused])
def test_a_point_that_ends_where_there_is_no_score_loses(score):
    """A shift to the left wins e^t where the density is there, and with all that leaves it no more than that."""
    x = -torch.log1p(-(torch.arange(2000, dtype=torch.float64)[:, None] + 0.5) / 2000)
    learner = fitted(MeanLearner, x, -torch.ones_like(x))
    gains = log_evalues(learner, surface(from_score(score), 1), x, -torch.ones_like(x), 0.5)
    assert bool((gains[x[:, 0] < 0.5] == -math.inf).all())
    assert float(gains.exp().mean()) == pytest.approx(1.0, abs=1e-3)


@pytest.mark.parametrize("kind", LEARNERS)
def test_rounding_of_large_log_densities_does_not_show(kind):
    """At 10⁸ numbers of float32 are 8 apart, so that differences of log-densities are nothing but rounding."""
    x = 0.3 + normal(100, 2)
    far = from_log_prob(lambda y: 1e8 - 0.5 * y.square().sum(1))
    score = -x.double()
    learner = fitted(kind, x.double(), score)
    time = 0.3 / float(learner.values(x.double(), score).square().mean().sqrt())
    like = torch.zeros(2, dtype=torch.float64)
    narrow = Surface(far, Metric(like, like + 1), (2,), torch.float32, torch.device("cpu"))
    expected = log_evalues(learner, surface(Gaussian(torch.zeros(2).double()), 2), x.double(), score, time)
    # Slopes along the path give the rest, as in the test above.
    assert torch.allclose(log_evalues(learner, narrow, x.double(), score, time), expected, atol=1e-4)
