"""What every result does: it prints, becomes JSON, pickles, draws itself, and cannot be changed."""

import inspect
import json
import math
import pickle
from dataclasses import FrozenInstanceError, fields, is_dataclass

import matplotlib.figure
import pytest
import torch

import steinscope
from steinscope import FitSettings, NonFiniteError, compare, discrepancy, gof_test, mode_weights, train
from steinscope.critics import MLP
from steinscope.findings import Finding, ModeFinding
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
    "Finding": lambda: Finding("additive", 0, 1, "u", 3.0),
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
        (Finding("additive", 1, 1, "u", 4.0), "x[1] spreads less than the model says (u, z = 4.0)"),
        (Finding("additive", 1, 1, "u", -4.0), "x[1] spreads more than the model says"),
        (Finding("additive", 1, 2, "u", 4.0), "x[1] and x[2] are less positively related than the model says"),
        (Finding("additive", 1, 2, "u", -4.0), "x[1] and x[2] are more positively related than the model says"),
        (
            Finding("additive", 1, 1, "sin 2u", 4.0),
            "the marginal of x[1] has another shape than the model says (sin",
        ),
        (Finding("additive", 1, 2, "cos u", 4.0), "x[1] depends on x[2] in another way than the model says"),
    ],
)
def test_findings_in_words(finding, words):
    assert str(finding).startswith(words)


def test_each_pair_of_coordinates_is_said_once():
    findings = (
        Finding("additive", 0, 1, "sin 2u", 9.0),
        Finding("additive", 2, 2, "u", 8.0),
        Finding("additive", 1, 0, "u", 7.0),
        Finding("additive", 0, 1, "cos u", 6.0),
    )
    assert one_for_each_subject(findings) == [findings[2], findings[1]]


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("name", ["statistic", "pvalue"])
def test_a_number_that_is_not_finite_is_an_error_and_no_verdict(name, value):
    numbers = {"statistic": 1.0, "pvalue": 0.2, name: value}
    with pytest.raises(NonFiniteError, match=f"Some test: its .* is {value}; points or scores are so large"):
        TestResult(**numbers, alpha=0.05, method="Some test", n=10, dim=2)
