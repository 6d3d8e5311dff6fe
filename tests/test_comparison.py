import inspect
import json
import math

import numpy as np
import pytest
import torch

from steinscope import FitSettings, InputError, compare, from_score
from steinscope.critics import MLP, Linear, Mean
from steinscope.models import Gaussian

from helpers import generator

DIM = 3
MODELS = {
    "far": Gaussian(torch.full((DIM,), 0.5)),
    "true": Gaussian(torch.zeros(DIM)),
    "near": Gaussian(torch.zeros(DIM), std=1.2),
}


def points(n, seed=0):
    return torch.randn(n, DIM, generator=generator(seed))


def true_discrepancy(model):
    """E‖s_q - s_p‖² for the standard normal p, with λ = 1/2."""
    precision = torch.linalg.inv(model.covariance.detach())
    shift = precision @ model.mean.detach()
    return float(((precision - torch.eye(DIM)) ** 2).sum() + shift @ shift)


@pytest.fixture(scope="module")
def ranking():
    return compare(MODELS, points(1000), critic=Linear(DIM))


def test_known_gaussians_are_ranked_and_measured():
    ranking = compare(
        MODELS, points(20000), critic=MLP(DIM, width=64, skip=True), folds=None, settings=FitSettings(steps=400)
    )
    truth = {name: true_discrepancy(model) for name, model in MODELS.items()}
    assert ranking.names == tuple(sorted(truth, key=lambda name: truth[name]))
    for name, value, stderr in zip(ranking.names, ranking.values, ranking.stderr, strict=True):
        assert abs(value - truth[name]) < 0.1 * truth[name] + 4 * stderr


def expected_value(model, critic):
    """The mean Stein value under N(0, I) of linear critics A x + b: E[s·f] + tr A with s = -P (x - μ)."""
    weights = torch.stack([part.weights.detach() for part in critic.critics]).mean(0).double()
    matrix, offset = weights[:, :-1], weights[:, -1]
    precision = torch.linalg.inv(model.covariance.detach().double())
    return float(offset @ precision @ model.mean.detach().double() - (precision * matrix).sum() + matrix.trace())


@pytest.mark.slow
def test_paired_intervals_cover_what_the_same_critics_have_as_their_mean():
    """200 repetitions: with true coverage .95 the count is within 180 and 198 with probability above .998."""
    covered = 0
    for repetition in range(200):
        x = points(300, seed=1000 + repetition)
        models = {name: MODELS[name] for name in ("near", "true")}
        ranking = compare(models, x, critic=Linear(DIM), folds=2, seed=repetition)
        near, true = (expected_value(MODELS[name], ranking.estimates[name].critic) for name in ("near", "true"))
        low, high = ranking.difference("near", "true").interval(0.95)
        covered += low <= near - true <= high
    assert 180 <= covered <= 198


def test_the_expected_value_is_that_of_a_large_sample():
    x = points(200_000, seed=99)
    ranking = compare(MODELS, points(300), critic=Linear(DIM), folds=2)
    for name, model in MODELS.items():
        critic = ranking.estimates[name].critic
        values = critic.stein(x, model.score(x).detach())[0].detach().double()
        assert abs(float(values.mean()) - expected_value(model, critic)) < 4 * float(values.std()) / 200_000**0.5


def test_pairing_makes_differences_more_certain(ranking):
    a, b = ranking.estimates["near"], ranking.estimates["far"]
    assert np.array_equal(a.index, b.index) and sorted(a.index) == list(range(1000))
    difference = ranking.difference("far", "near")
    assert difference.value == pytest.approx(b.value - a.value, abs=1e-6)
    pointwise = b.values.astype(float) - a.values
    assert difference.stderr == pytest.approx(pointwise.std(ddof=1) / math.sqrt(1000))
    reverse = ranking.difference("near", "far")
    assert reverse.value == -difference.value and reverse.probability == pytest.approx(1 - difference.probability)
    assert difference.probability > 0.99


def test_models_share_splits_seeds_and_first_weights():
    model = Gaussian(torch.full((DIM,), 0.3))
    ranking = compare(
        {"one": model, "worse": MODELS["far"], "two": model},
        points(300),
        critic=MLP(DIM, width=8),
        settings=FitSettings(steps=30),
        folds=2,
    )
    one, two = ranking.estimates["one"], ranking.estimates["two"]
    assert np.array_equal(one.values, two.values)
    assert ranking.difference("one", "two").probability == 0.5
    assert isinstance(one.critic, Mean)


def test_scores_are_computed_once_for_each_point():
    seen = []

    def score(x):
        seen.append(len(x))
        return -x

    compare({"a": from_score(score)}, points(500), critic=MLP(DIM, width=8), settings=FitSettings(steps=60), folds=3)
    assert sum(seen) == 500


def test_a_model_that_fails_is_reported_in_its_row():
    x = points(300)
    bad = -x.clone()
    bad[17, 1] = math.nan
    ranking = compare({"bad": bad, "good": -x}, x, critic=Linear(DIM))
    assert ranking.names == ("good",) and "row 17" in ranking.failures["bad"]
    assert "failed" in str(ranking) and "row 17" in str(ranking)
    assert ranking.rows()[-1]["model"] == "bad" and ranking.rows()[-1]["lsd"] is None
    with pytest.raises(InputError, match=r"a: expected one of good, got 'bad', which failed: .*row 17"):
        ranking.difference("bad", "good")
    with pytest.raises(InputError, match="models: none of the 1 could be ranked; bad: .*row 17"):
        compare({"bad": bad}, x)


def test_a_critic_that_does_not_stay_finite_is_reported_too():
    x = points(300)
    models = {"wild": from_score(lambda y: 1e37 * y), "good": -x}
    ranking = compare(models, x, critic=MLP(DIM, width=8), settings=FitSettings(steps=50, lr=0.001), folds=None)
    assert ranking.names == ("good",) and "non-finite" in ranking.failures["wild"]


def test_the_table_reads_well(ranking):
    lines = str(ranking).splitlines()
    assert lines[0] == "Learned Stein discrepancy, λ = 0.5, 5 folds, 1000 points held out for every model"
    assert "P(best is better)" in lines[2]
    assert [line.split()[1] for line in lines[3:]] == ["true", "near", "far"]
    assert max(map(len, lines)) <= 100
    result = json.loads(json.dumps(ranking.to_dict()))
    assert [row["model"] for row in result["models"]] == ["true", "near", "far"]
    assert result["models"][0]["best_is_better"] is None and result["n_test"] == 1000


def test_the_figure_shows_every_model(ranking):
    figure = ranking.plot()
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == ["true", "near", "far"]


@pytest.mark.parametrize(
    "models, message",
    [
        ({}, "models: expected at least one model, got none"),
        (
            {"a": torch.zeros(4, 2)},
            r"models\['a'\]: an array of scores must have the shape of x, \(50, 3\), got \(4, 2\)",
        ),
        ({"a": "nonsense"}, r"models\['a'\]: expected an object with score"),
    ],
)
def test_bad_models(models, message):
    with pytest.raises(InputError, match=message):
        compare(models, points(50))


def test_names_are_strings():
    with pytest.raises(InputError, match="models: expected names that are strings, got 3"):
        inspect.unwrap(compare)({3: MODELS["true"]}, points(50))


def test_bad_settings():
    with pytest.raises(InputError, match="l2: expected a positive number, got 0"):
        compare(MODELS, points(50), l2=0)
    with pytest.raises(InputError, match="folds: expected a whole number from 2 on, got 1"):
        compare(MODELS, points(50), folds=1)
    with pytest.raises(InputError, match="level: expected a number between 0 and 1, got 95"):
        compare({"a": MODELS["true"]}, points(100), critic=Linear(DIM)).difference("a", "a").interval(95)
