"""What every result does: it prints, becomes JSON, pickles, draws itself, and cannot be changed."""

import inspect
import json
import math
import pickle
from dataclasses import FrozenInstanceError, fields, is_dataclass, replace

import matplotlib.figure
import pytest
import torch

import steinscope
from steinscope import FitSettings, NonFiniteError, compare, discrepancy, gof_test, mode_weights, train
from steinscope.critics import MLP
from steinscope.findings import Finding, ModeFinding, spoken
from steinscope.kernels import ksd_estimate, ksd_test
from steinscope.models import Gaussian
from steinscope.objectives import score_matching
from steinscope.results import TestResult

from helpers import gaussians, normal

X = normal(300, 3)
QUICK = FitSettings(steps=10, every=5)

# How to make one of each. What a function of `steinscope` returns needs a line here.
RESULTS = {
    "TestResult": lambda: gof_test(X, 0.5 - X, critics=("mean", "additive")),
    "TestResult of a kernel test": lambda: ksd_test(X, 0.5 - X),
    "Estimate": lambda: discrepancy(X, 0.5 - X, critics=MLP(3, width=8), settings=QUICK),
    "Ranking": lambda: compare({"a": -X, "b": 0.5 - X, "bad": X * math.nan}, X, critics="linear", folds=2),
    "TrainResult": lambda: train(Gaussian(torch.zeros(3)), X, steps=4, log_every=2, average=0.9),
    "Explanation": lambda: gof_test(X, 0.5 - X, critics="mean").explain(worst=2),
    "Difference": lambda: RESULTS["Ranking"]().difference("b", "a"),
    "ModeWeights": lambda: mode_weights(X, gaussians([0.4, 0.6], [[-3.0, 0.0, 0.0], [3.0, 0.0, 0.0]], [1.0, 1.0])),
    "Finding": lambda: Finding("mean", (1,), 0.2, 0.15, 0.25, 8.0),
    "ModeFinding": lambda: ModeFinding("modes", 2, 0.5, 0.25, 0.02, 9.0),
    "KSDEstimate": lambda: ksd_estimate(X, 0.5 - X),
    "ScoreMatchingEstimate": lambda: score_matching(X, Gaussian(torch.ones(3))),
    "History": lambda: RESULTS["Estimate"]().history,
    "TrainHistory": lambda: RESULTS["TrainResult"]().history,
}
WITH_DICT = [
    "TestResult",
    "TestResult of a kernel test",
    "Estimate",
    "Ranking",
    "TrainResult",
    "Explanation",
    "ModeWeights",
]
WITH_DICT += ["History", "TrainHistory"]
DRAWN = ["TestResult", "Estimate", "Ranking", "TrainResult", "Explanation", "ModeWeights"]
# An explanation holds its critic as a function.
PICKLED = [name for name in RESULTS if name != "Explanation"]


@pytest.fixture(scope="module")
def made():
    cache = {}

    def make(name):
        if name not in cache:
            cache[name] = RESULTS[name]()
        return cache[name]

    return make


def test_what_functions_return_is_tested():
    public = [getattr(steinscope, name) for name in steinscope.__all__ if name != "__version__"]
    kinds = {kind.__name__ for kind in public if inspect.isclass(kind) and is_dataclass(kind)}
    assert kinds - set(RESULTS) == {"FitSettings", "TrainSettings"}


@pytest.mark.parametrize("name", RESULTS)
def test_it_is_what_it_is_called_and_cannot_be_changed(name, made):
    result = made(name)
    assert type(result).__name__ == name.split()[0]
    with pytest.raises(FrozenInstanceError):
        setattr(result, fields(result)[0].name, 0)


@pytest.mark.parametrize("name", RESULTS)
def test_it_prints_for_people(name, made):
    text = str(made(name))
    assert text.strip() and "object at 0x" not in text
    assert all(line == line.rstrip() for line in text.splitlines())


@pytest.mark.parametrize("name", WITH_DICT)
def test_it_becomes_json(name, made):
    """Plain numbers, strings and lists, all of them finite, and the same after a file."""
    values = made(name).to_dict()
    assert json.loads(json.dumps(values, allow_nan=False)) == with_lists(values)
    assert values == made(name).to_dict()


def with_lists(value):
    """What JSON makes of tuples."""
    if isinstance(value, dict):
        return {key: with_lists(item) for key, item in value.items()}
    return [with_lists(item) for item in value] if isinstance(value, list | tuple) else value


def test_every_to_dict_is_tested(made):
    assert {name for name in RESULTS if hasattr(made(name), "to_dict")} == set(WITH_DICT)


@pytest.mark.parametrize("name", PICKLED)
def test_it_pickles(name, made):
    result = made(name)
    same = pickle.loads(pickle.dumps(result))
    assert type(same) is type(result) and str(same) == str(result)
    if name in WITH_DICT:
        assert same.to_dict() == result.to_dict()


@pytest.mark.parametrize("name", DRAWN)
def test_it_draws_itself(name, made, tmp_path):
    figure = made(name).plot()
    assert isinstance(figure, matplotlib.figure.Figure) and any(ax.has_data() for ax in figure.axes)
    figure.savefig(tmp_path / "figure.png")


def test_a_result_that_was_pickled_leaves_its_points_behind():
    x = normal(50_000, 5)
    result = gof_test(x, -x, critics="linear")
    assert len(pickle.dumps(result)) < 10_000 and "recipe" not in result.to_dict()


def result(pvalue=0.01, findings=()):
    return TestResult(2.0, pvalue, 0.05, "A test", 100, 1, findings=findings)


def test_the_verdict_is_that_of_the_pvalue():
    assert result(0.05).rejected and not result(math.nextafter(0.05, 1)).rejected
    assert "the model is rejected at level 0.05" in str(result(0.05)) and "1 coordinate\n" in str(result())
    assert "no misfit was found at level 0.05" in str(result(0.06)) and result().strongest is None


@pytest.mark.parametrize(
    "finding, words",
    [
        (Finding("mean", (1,), 0.2, 0.151, 0.249), "x[1] lies 0.20 sd above the model (0.15 to 0.25)"),
        (Finding("mean", (1,), -0.2, -0.249, -0.151), "x[1] lies 0.20 sd below the model (0.15 to 0.25)"),
        (Finding("mean", (1,), 0.01, 0.0081, 0.0119), "x[1] lies 0.010 sd above the model (0.008 to 0.012)"),
        (Finding("scale", (1,), 0.88, 0.84, 0.92), "x[1] spreads 12% less than the model says (8% to 16%)"),
        (Finding("scale", (1,), 1.12, 1.08, 1.16), "x[1] spreads 12% more than the model says (8% to 16%)"),
        (Finding("scale", (1,), 3.1, 2.9, 3.3), "x[1] spreads 3.1 times as much as the model says (2.9 to 3.3)"),
        (
            Finding("scale", (1,), 1e-10, 9e-11, 1.1e-10),
            "x[1] spreads 1e-10 times as much as the model says (9e-11 to 1.1e-10)",
        ),
        (
            Finding("scale", (1,), 3.1e7, 2.9e7, 3.3e7),
            "x[1] spreads 3.1e+07 times as much as the model says (2.9e+07 to 3.3e+07)",
        ),
        (Finding("mean", (1,), 0.2, -0.049, 0.449), "x[1] lies 0.2 sd above the model (0.0 to 0.4)"),
        (Finding("mean", (1,), -0.20, -0.29, 0.021), "x[1] lies 0.2 sd below the model (0.0 to 0.3)"),
        (Finding("scale", (1,), 1.04, 0.98, 1.10), "x[1] spreads 4% more than the model says (-2% to 10%)"),
        (Finding("scale", (1,), 0.96, 0.90, 1.02), "x[1] spreads 4% less than the model says (-2% to 10%)"),
        (
            Finding("correlation", (0, 1), 0.29, 0.23, 0.35, found=0.3),
            "x[0] and x[1] have correlation 0.30, 0.29 above what the model says (0.23 to 0.35)",
        ),
        (
            Finding("correlation", (0, 1), -0.29, -0.35, -0.23, found=0.3),
            "x[0] and x[1] have correlation 0.30, 0.29 below what the model says (0.23 to 0.35)",
        ),
        (
            Finding("shape", (1,), 0.12, 0.09, 0.15),
            "x[1] has another shape than the model says: about 12% of its mass lies elsewhere (9% to 15%)",
        ),
        (
            Finding("dependence", (1, 0), 0.35, 0.31, 0.39),
            "x[1] depends on x[0] in another way than the model says: its mean given x[0] is 0.35 sd off on average "
            "(0.31 to 0.39)",
        ),
        (
            Finding("factor", (), 2**0.5, 1.39, 1.44),
            "every coordinate spreads 41% more than the model says (39% to 44%): as if all scores had been multiplied "
            "by 2",
        ),
        (Finding("constant", (1,)), "x[1] is constant, and the model says that it varies"),
        (Finding("outward", (1,)), "the scores push x[1] away from the middle of the points"),
        (
            Finding("mean", (1,), 0.2, 0.151, 0.249, names=("tau",), about="posterior"),
            "tau lies 0.20 sd above the posterior (0.15 to 0.25)",
        ),
    ],
)
def test_findings_in_words(finding, words):
    assert str(finding) == words


def test_what_is_small_says_so():
    small = [("mean", 0.05, 0.03, 0.07), ("scale", 1.02, 1.01, 1.03), ("correlation", -0.03, -0.04, -0.02)]
    large = [("mean", -0.09, -0.11, -0.07), ("scale", 0.9, 0.88, 0.92), ("shape", 0.1, 0.08, 0.12)]
    assert all(Finding(kind, (0,), *sizes).is_small for kind, *sizes in small)
    assert not any(Finding(kind, (0,), *sizes).is_small for kind, *sizes in large) and not Finding("sign").is_small
    tiny = replace(result(findings=(Finding("mean", (0,), 0.01, 0.008, 0.012),)), n=10**6)
    assert "all of this is small: 1000000 points show it" in str(tiny)


def test_findings_are_ordered_by_how_far_from_a_fit_they_are():
    scales = [Finding("scale", (i,), size, size - 0.1, size + 0.1) for i, size in enumerate([1.5, 0.4, 0.9, 2.2])]
    assert [one.coordinates for one in sorted(scales, key=lambda one: one.strength)] == [(2,), (0,), (3,), (1,)]
    means = [Finding("mean", (i,), size, size - 0.1, size + 0.1) for i, size in enumerate([0.3, -0.9, 0.5])]
    assert max(means, key=lambda one: one.strength).coordinates == (1,)
    # A marginal whose share elsewhere cannot be told is too far away for that; of two, the surer one is first.
    shapes = [
        Finding("shape", (0,), 0.4, 0.3, 0.5, z=50.0),
        Finding("shape", (1,), z=9.0),
        Finding("shape", (2,), z=20.0),
    ]
    assert [one.coordinates for one in sorted(shapes, key=lambda one: one.strength)] == [(0,), (1,), (2,)]


def test_of_each_kind_the_first_are_said():
    means = [Finding("mean", (i,), 0.2, 0.1, 0.3) for i in range(5)]
    lines = spoken([*means, Finding("scale", (0,), 0.8, 0.7, 0.9)])
    assert len(lines) == 5 and lines[3] == "and 2 more of this kind (mean)" and "spreads" in lines[4]


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("name", ["statistic", "pvalue"])
def test_a_number_that_is_not_finite_is_an_error_and_no_verdict(name, value):
    numbers = {"statistic": 1.0, "pvalue": 0.2, name: value}
    with pytest.raises(NonFiniteError, match=f"Some test: its .* is {value}; points or scores are so large"):
        TestResult(**numbers, alpha=0.05, method="Some test", n=10, dim=2)


def test_a_pvalue_too_small_for_a_number_is_not_zero():
    x = 1.5 + normal(4000, 1)
    result = gof_test(x, -x, critics="mean")
    assert result.pvalue == 0.0 and "p < 1e-300, statistic" in str(result)
    assert any(note.endswith("p-values below 1e-300 in 4 random orders of the points") for note in result.notes)
