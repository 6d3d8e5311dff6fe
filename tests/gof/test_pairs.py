import numpy as np
import pytest
import torch

from steinscope import gof_test
from steinscope.gof.pairs import MOST_POINTS, PAIR_CRITICS, pair_tests
from steinscope.metric import Metric
from steinscope.models import Gaussian
from steinscope.portfolio.kernel import KernelLearner
from steinscope.portfolio.moments import LinearLearner, MeanLearner
from steinscope.scoring import make_points

from helpers import normal


def values_by_learner(learner, x, score):
    """The Stein value of each point under the critic made from each other single point."""
    matrix = torch.zeros(len(x), len(x), dtype=x.dtype)
    learner.begin(x, score)
    for i in range(len(x)):
        learner.begin(x, score)
        learner.observe(x[i : i + 1], score[i : i + 1])
        learner.refit()
        matrix[i] = learner.values(x, score)
    return matrix.fill_diagonal_(0.0)


@pytest.mark.parametrize(
    "name, learner", [("mean", MeanLearner()), ("linear", LinearLearner()), ("kernel", KernelLearner(1.0))]
)
def test_the_statistic_is_the_mean_over_pairs_of_the_critics_own_values(name, learner):
    x = normal(40, 3).double()
    points = make_points(x, 0.3 - 2 * x)
    moved = points.in_metric(Metric.scaled(points.x, points.score))
    matrix = values_by_learner(learner, moved.x, moved.score)
    (found,) = pair_tests(points, [name], seed=0)
    assert found.statistic == pytest.approx(float(matrix.sum() / (2 * matrix.square().sum()).sqrt()), rel=1e-6)


def test_units_do_not_matter():
    x, units = normal(60, 3).double(), torch.tensor([1e-3, 1.0, 1e4]).double()
    ours, other = (pair_tests(make_points(x * u + 5 * u, -x / u), PAIR_CRITICS, 0) for u in (1.0, units))
    for one, same in zip(ours, other, strict=True):
        assert (one.statistic, one.pvalue) == pytest.approx((same.statistic, same.pvalue), rel=1e-6)


def test_few_points_are_tested_over_all_pairs():
    x = normal(20, 2)
    result = gof_test(x + 1.5, -x - 1.5)
    assert result.rejected and result.critics == () and [pair.name for pair in result.pairs] == ["kernel"]
    assert "all pairs: kernel p = " in str(result) and "20 points" in str(result)
    assert result.to_dict()["pairs"][0]["name"] == "kernel"
    assert [pair.name for pair in gof_test(x, -x, critics="linear").pairs] == ["linear"]


def test_many_points_are_not_paired():
    x = normal(MOST_POINTS + 1, 2)
    assert gof_test(x, -x, critics="closed form", repeats=2).pairs == ()
    assert len(gof_test(x[1:], -x[1:], critics="closed form", repeats=2).pairs) == len(PAIR_CRITICS)
    assert gof_test(x[1:], -x[1:], critics="closed form", repeats=1).pairs == ()


@pytest.mark.parametrize(("n", "dim"), [(20, 2), (20, 20), (50, 20), (99, 20)])
def test_the_level_of_few_points(n, dim):
    """400 exact nulls of a skewed model: at most four standard errors from 5%. Scores that are as skewed as this would
    be rejected in a fifth of the cases with units that come from them."""
    rejections = 0
    for seed in range(400):
        x = torch.from_numpy(np.random.default_rng(seed).gumbel(size=(n, dim)))
        rejections += gof_test(x, torch.exp(-x) - 1, seed=seed).rejected
    assert abs(rejections / 400 - 0.05) < 4 * (0.0475 / 400) ** 0.5


@pytest.mark.parametrize("n, dim", [(150, 4), (1000, 1)])
def test_a_model_that_was_fitted_to_the_points_is_noticed(n, dim):
    """The mean score at the points of a fitted Gaussian is zero; at new ones it is as small in one of 501 cases."""
    x = normal(n, dim).double()
    fitted = Gaussian(x.mean(0), std=x.std(0, correction=0))
    for model, is_noticed in ((fitted, True), (Gaussian(torch.zeros(dim).double()), False)):
        found = gof_test(x, model, critics="closed form").notes
        assert any("if the model was fitted to these" in note for note in found) == is_noticed
