"""What models and users say about supports, read into one form."""

import math

import pytest
import torch
from torch.distributions import (
    AffineTransform,
    Bernoulli,
    Beta,
    Categorical,
    Dirichlet,
    Exponential,
    ExpTransform,
    Gamma,
    HalfNormal,
    Independent,
    LKJCholesky,
    LogNormal,
    LowRankMultivariateNormal,
    MixtureSameFamily,
    Normal,
    Pareto,
    Poisson,
    SigmoidTransform,
    TransformedDistribution,
    Uniform,
    VonMises,
    constraints,
)

from steinscope import InputError, compare, from_energy, from_log_prob, from_score, gof_test
from steinscope.models import Gaussian
from steinscope.settings import SUPPORT_WORDS, read_support
from steinscope.supports import common_region, find_region

from helpers import generator

INF = math.inf


def moved(base, *transforms):
    return TransformedDistribution(base, list(transforms))


def mixture(components):
    return MixtureSameFamily(Categorical(torch.ones(2)), components)


DECLARED = {
    "Exponential": (Exponential(1.0), [1], [0], [INF]),
    "HalfNormal in 2 d": (Independent(HalfNormal(torch.ones(2)), 1), [2], [0, 0], [INF, INF]),
    "single numbers": (Exponential(1.0), [], [0], [INF]),
    "Uniform": (Independent(Uniform(torch.tensor([0.0, -1.0]), torch.tensor([1.0, 3.0])), 1), [2], [0, -1], [1, 3]),
    "Beta": (Beta(0.7, 0.7), [1], [0], [1]),
    "Pareto": (Pareto(torch.tensor([2.0]), torch.tensor([3.0])), [1], [2], [INF]),
    "VonMises": (VonMises(0.0, 1.0), [1], [-math.pi], [math.pi]),
    "LogNormal": (LogNormal(0.0, 1.0), [1], [0], [INF]),
    "a mixture": (mixture(Gamma(torch.tensor([1.0, 5.0]), torch.ones(2))), [1], [0], [INF]),
    "a mixture in 3 d": (mixture(Independent(Uniform(torch.zeros(2, 3), torch.ones(2, 3)), 1)), [3], [0] * 3, [1] * 3),
    "a mixture of intervals": (mixture(Uniform(torch.zeros(2), 2 * torch.ones(2))), [1], [0], [2]),
    "an image": (Independent(Beta(torch.ones(2, 2), torch.ones(2, 2)), 2), [2, 2], [0] * 4, [1] * 4),
    # torch says of these that they live on all real numbers.
    "shifted": (moved(Exponential(1.0), AffineTransform(3.0, 2.0)), [1], [3], [INF]),
    "turned": (moved(Exponential(1.0), AffineTransform(3.0, -2.0)), [1], [-INF], [3]),
    "in a sum": (Independent(moved(Exponential(torch.ones(2)), AffineTransform(1.0, 1.0)), 1), [2], [1, 1], [INF, INF]),
    "powers": (moved(Uniform(0.0, 2.0), ExpTransform()), [1], [1], [math.exp(2)]),
    "shifted exponentials": (moved(Normal(0.0, 1.0), ExpTransform(), AffineTransform(-1.0, 1.0)), [1], [-1], [INF]),
}


@pytest.mark.parametrize("name", DECLARED)
def test_what_distributions_declare(name):
    model, shape, low, high = DECLARED[name]
    region = find_region(None, model, shape)
    torch.testing.assert_close(region.low, torch.tensor(low, dtype=torch.float64))
    torch.testing.assert_close(region.high, torch.tensor(high, dtype=torch.float64))
    assert region.shape == tuple(shape) and not region.simplices


@pytest.mark.parametrize(
    "model",
    [
        Normal(0.0, 1.0),
        LowRankMultivariateNormal(torch.zeros(2), torch.ones(2, 1), torch.ones(2)),
        mixture(Normal(torch.zeros(2), 1.0)),
        # The logistic distribution: a sigmoid turned round is finite at 0 and 1 in torch, by rounding.
        moved(Uniform(0.0, 1.0), SigmoidTransform().inv, AffineTransform(0.0, 2.0)),
        Gaussian(torch.zeros(2)),
        from_score(lambda x: -x),
        torch.zeros(4, 2),
        None,
    ],
    ids=lambda model: type(model).__name__,
)
def test_models_that_live_everywhere(model):
    assert find_region(None, model, [2]) is None


@pytest.mark.parametrize(
    "support, shape, low, high",
    [
        ("positive", [2], [0, 0], [INF, INF]),
        ("unit", [2, 1], [0, 0], [1, 1]),
        ((-1, 2), [1], [-1], [2]),
        ((None, 2), [1], [-INF], [2]),
        ((torch.tensor([0.0, 1.0]), 5.0), [2], [0, 1], [5, 5]),
        (["positive", "real", (0, 3)], [3], [0, -INF, 0], [INF, INF, 3]),
        (constraints.less_than(2.0), [1], [-INF], [2]),
        (constraints.cat([constraints.positive, constraints.unit_interval], 0, [1, 2]), [3], [0, 0, 0], [INF, 1, 1]),
    ],
)
def test_what_users_say(support, shape, low, high):
    region = find_region(support, None, shape)
    assert region.low.tolist() == low and region.high.tolist() == high


def test_a_simplex_has_groups_that_add_up_to_one():
    assert find_region(None, Dirichlet(torch.ones(3)), [3]).simplices[0].tolist() == [[0, 1, 2]]
    assert find_region("simplex", None, [2, 3]).simplices[0].tolist() == [[0, 1, 2], [3, 4, 5]]
    mixed = constraints.cat([constraints.positive, constraints.simplex], 0, [1, 3])
    assert find_region(mixed, None, [4]).simplices[0].tolist() == [[1, 2, 3]]


def test_what_the_user_says_takes_precedence():
    assert find_region("real", Exponential(1.0), [1]) is None
    assert find_region((1, 2), Exponential(1.0), [1]).low.tolist() == [1]


@pytest.mark.parametrize("make", [from_log_prob, from_energy, from_score])
@pytest.mark.parametrize("numpy", [False, True])
def test_functions_have_a_support(make, numpy):
    assert find_region(None, make(lambda x: x, numpy=numpy, support="unit"), [1]).high.tolist() == [1]
    with pytest.raises(InputError, match="support: expected 'real', 'positive'.* got 'posit'"):
        make(lambda x: x, numpy=numpy, support="posit")


class Scipy:
    """Frozen distributions of SciPy have a method of that name."""

    def score(self, x):
        return -x

    def support(self):
        return 0.0, 1.0


def test_an_attribute_that_is_something_else_is_left_alone():
    assert find_region(None, Scipy(), [1]) is None


@pytest.mark.parametrize(
    "model, support, shape, message",
    [
        (Poisson(1.0), None, [1], r"model: Poisson is discrete, its support is IntegerGreaterThan"),
        (Independent(Bernoulli(torch.ones(2) / 2), 1), None, [2], "model: Bernoulli is discrete"),
        (Categorical(torch.ones(3)), None, [], "model: Categorical is discrete"),
        (mixture(Poisson(torch.ones(2))), None, [1], "model: Poisson is discrete"),
        (None, constraints.nonnegative_integer, [1], "support: the model is discrete"),
        (LKJCholesky(3), None, [3, 3], "model: there are no unconstrained coordinates for the support Corr"),
        (
            mixture(Uniform(torch.zeros(2), torch.tensor([1.0, 2.0]))),
            None,
            [1],
            "model: the components of the mixture end",
        ),
        (Uniform(torch.zeros(3), torch.ones(3)), None, [2], r"model: the support has bounds of shape \(3,\)"),
        (None, "posit", [1], "support: expected 'real', 'positive', 'unit', 'simplex', .*, got 'posit'"),
        (None, 3, [1], "support: expected .* got 3"),
        (None, [], [1], r"support: expected .* got \[\]"),
        (None, (2, 1), [1], r"support: expected \(low, high\) with low < high, got \(2, 1\)"),
        (None, (0, math.nan), [1], r"support: expected \(low, high\) with low < high"),
        (None, ["positive"], [2], "support: the support has 1 parts, and the points have 2 coordinates"),
        (None, ["positive", "simplex"], [2], "support: a single coordinate cannot be a simplex"),
        (None, ["positive", "real"], [2, 2], "support: a list has one entry for each coordinate of a vector"),
        (None, "simplex", [1], "support: a simplex needs at least 2 coordinates"),
    ],
)
def test_supports_that_cannot_be_used(model, support, shape, message):
    with pytest.raises(InputError, match=message) as caught:
        find_region(support, model, shape)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "support, row, message",
    [
        ("positive", [0.5, -0.25], r"x: row 7 holds -0.25 in coordinate 1, outside of the support \(0, inf\)$"),
        ("positive", [0.0, 0.5], "x: row 7 holds 0 in coordinate 0, at the edge of the support .*; every point must"),
        ((-1, 0.5), [0.25, 0.5], r"x: row 7 holds 0.5 in coordinate 1, at the edge of the support \(-1, 0.5\)"),
        ("unit", [0.25, 1.5], r"x: row 7 holds 1.5 in coordinate 1, outside of the support \(0, 1\)"),
        ("simplex", [0.25, 0.5], "x: row 7 adds up to 0.75; the support is a simplex"),
    ],
)
def test_the_first_point_outside_is_named(support, row, message):
    x = torch.full((300, 2), 0.5) if support == "simplex" else 0.4 * torch.rand(300, 2, generator=generator())
    x[7] = torch.tensor(row)
    x[9] = torch.tensor(row) if support == "simplex" else -3.0
    with pytest.raises(InputError, match=message):
        gof_test(x, -x, support=support)


def test_models_are_compared_where_all_of_them_live():
    x = Exponential(torch.ones(2)).sample((1,)).expand(1, 2)
    exponential, gamma = Independent(Exponential(torch.ones(2)), 1), Independent(Gamma(torch.ones(2), torch.ones(2)), 1)
    models = {"a": exponential, "b": gamma, "c": Gaussian(torch.zeros(2)), "d": -x}
    assert common_region(None, models, [2]).low.tolist() == [0, 0]
    assert common_region(None, {"c": models["c"]}, [2]) is None
    assert common_region("unit", models, [2]).high.tolist() == [1, 1]
    uniform = Independent(Uniform(torch.zeros(2), torch.ones(2)), 1)
    with pytest.raises(InputError, match=r"models: a lives on \(0, inf\) and u on \(0, 1\); .* support="):
        common_region(None, {"a": exponential, "u": uniform}, [2])


def test_a_discrete_model_fails_in_its_own_row():
    torch.manual_seed(0)
    x = Exponential(torch.ones(1)).sample((200,))
    ranking = compare({"exponential": Exponential(1.0), "poisson": Poisson(1.0)}, x, critics="linear", folds=None)
    assert ranking.names == ("exponential",) and ranking.failures["poisson"].startswith("Poisson is discrete")


@pytest.mark.parametrize("word", SUPPORT_WORDS)
def test_words_are_read_from_text(word):
    assert read_support(word) == word
    find_region(read_support(word), None, [2])


@pytest.mark.parametrize("text", ["", "posit", "1,", "a,b", "positive,real"])
def test_other_text_is_refused(text):
    with pytest.raises(InputError, match="support: expected"):
        read_support(text)


def test_points_are_mirrored_into_the_region():
    region = find_region(["positive", (None, 1.0), (0, 1), "real"], None, [4])
    x = torch.tensor([[-0.5, 2.0, 2.25, -7.0], [0.5, 0.5, -0.25, 7.0]])
    expected = torch.tensor([[0.5, 0.0, 0.25, -7.0], [0.5, 0.5, 0.25, 7.0]])
    torch.testing.assert_close(region.mirrored(x), expected)
    torch.testing.assert_close(find_region("simplex", None, [3]).mirrored(torch.randn(5, 3)).sum(1), torch.ones(5))
