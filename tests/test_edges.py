"""Warnings of points that end sharply: rare where tails are smooth, and there where a support was forgotten."""

import pytest
import torch
from torch.distributions import (
    Beta,
    Categorical,
    Exponential,
    Gumbel,
    HalfNormal,
    Laplace,
    MixtureSameFamily,
    Normal,
    StudentT,
    Uniform,
)

from steinscope import discrepancy, gof_test
from steinscope.edges import sharp_ends
from steinscope.kernels import ksd_test

REPEATS = 200


def mixture(weights, means, scales):
    return MixtureSameFamily(Categorical(torch.tensor(weights)), Normal(torch.tensor(means), torch.tensor(scales)))


def draw(model, n=1000, columns=REPEATS):
    """Columns of points, and of scores there."""
    torch.manual_seed(0)
    x = model.sample((n, columns)).requires_grad_()
    value = model.log_prob(x)
    score = torch.autograd.grad(value.sum(), x)[0] if value.requires_grad else torch.zeros_like(x)
    return x.detach(), score


SMOOTH = {
    "normal": Normal(0.0, 1.0),
    "student": StudentT(3.0),
    "laplace": Laplace(0.0, 1.0),
    "gumbel": Gumbel(0.0, 1.0),
    "eight modes": mixture([0.125] * 8, [6.0 * i for i in range(8)], [1.0] * 8),
    "a small mode": mixture([0.1, 0.9], [-10.0, 0.0], [1.0, 1.0]),
    "heavy mixture": MixtureSameFamily(Categorical(torch.ones(2)), StudentT(2.0, torch.tensor([-5.0, 5.0]))),
    "two scales": mixture([0.9, 0.1], [0.0, 0.0], [1.0, 10.0]),
}
SHARP = {
    "exponential": Exponential(1.0),
    "half-normal": HalfNormal(1.0),
    "uniform": Uniform(0.0, 1.0),
    "beta": Beta(0.7, 0.7),
}


@pytest.mark.parametrize("name", SMOOTH)
def test_no_warning_where_tails_are_smooth(name):
    """At most 1% of 200 columns."""
    assert sharp_ends(*draw(SMOOTH[name])).any(0).sum() <= REPEATS // 100


@pytest.mark.parametrize("name", ["normal", "student", "laplace"])
def test_no_warning_where_only_the_model_is_wrong(name):
    """A model that is far too wide hardly pushes inwards."""
    x, _ = draw(SMOOTH[name])
    assert sharp_ends(x, -x / 100).any(0).sum() <= REPEATS // 100


@pytest.mark.parametrize("name", SHARP)
def test_a_warning_where_a_support_was_forgotten(name):
    """In at least 95% of 200 columns, below and, turned round, above."""
    x, score = draw(SHARP[name])
    assert sharp_ends(x, score)[0].sum() >= 0.95 * REPEATS
    assert sharp_ends(-x, -score)[1].sum() >= 0.95 * REPEATS


def test_no_warning_where_the_score_pushes_inwards():
    """A Gamma(3) ends at zero, but vanishes there."""
    assert sharp_ends(*draw(torch.distributions.Gamma(3.0, 1.0))).any(0).sum() <= REPEATS // 100


def test_few_points_constants_and_rounded_numbers_give_none():
    x, score = draw(SHARP["exponential"])
    assert not sharp_ends(x[:900], score[:900]).any()
    assert not sharp_ends(torch.ones(1000, 1), torch.ones(1000, 1)).any()
    assert not sharp_ends(x.round(), score).any()


def test_results_name_the_coordinate():
    torch.manual_seed(1)
    x = torch.cat([Normal(0.0, 1.0).sample((2000, 1)), Exponential(1.0).sample((2000, 1))], 1)
    score = torch.cat([-x[:, :1], -torch.ones(2000, 1)], 1)
    for result in (
        gof_test(x, score, critics="mean", names=["height", "waiting"]),
        ksd_test(x[:1000], score[:1000]),
        discrepancy(x, score, critics="linear", folds=None),
    ):
        (note,) = (note for note in result.notes if "end sharply" in note)
        assert "support=" in note and "x[0]" not in note and ("x[1] at" in note or "waiting at" in note)
    declared = gof_test(x, score, support=["real", "positive"], critics="mean")
    assert not any("end sharply" in note for note in declared.notes)
    assert "computed in unconstrained coordinates (log x for x[1])" in declared.notes
