import inspect
import json
import math

import numpy as np
import pytest
import torch

from steinscope import FitSettings, InputError, compare, from_score
from steinscope.critics import MLP, Mean
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
    return compare(MODELS, points(1000), critics="linear", metric="identity")


def test_known_gaussians_are_ranked_and_measured():
    ranking = compare(MODELS, points(5000), metric="identity", folds=None, settings=FitSettings(steps=100))
    truth = {name: true_discrepancy(model) for name, model in MODELS.items()}
    assert ranking.names == tuple(sorted(truth, key=lambda name: truth[name]))
    for name, value, stderr in zip(ranking.names, ranking.values, ranking.stderr, strict=True):
        assert abs(value - truth[name]) < 0.1 * truth[name] + 4 * stderr


@pytest.mark.slow
def test_paired_intervals_cover_what_the_same_critics_show_on_a_large_sample():
    """200 repetitions: with true coverage .95 the count is within 180 and 198 with probability above .998."""
    large = points(100_000, seed=99)
    scores = {name: MODELS[name].score(large).detach() for name in ("near", "true")}
    models = {name: MODELS[name] for name in scores}
    covered = 0
    for repetition in range(200):
        x = points(300, seed=1000 + repetition)
        ranking = compare(models, x, critics="linear", metric="identity", folds=None, seed=repetition)
        means = {}
        for name in scores:
            stein, norms = ranking.estimates[name].critic.stein(large, scores[name])
            means[name] = float(2 * (stein.double() - 0.5 * norms.double()).mean())
        low, high = ranking.difference("near", "true").interval(0.95)
        covered += low <= means["near"] - means["true"] <= high
    assert 180 <= covered <= 198


@pytest.mark.slow
def test_models_that_are_equally_good_do_not_look_certain():
    """Means that are off by .3 in one coordinate or another are equally wrong. If more than 95% has probability .05, it
    is seen in 8 or more of 60 rankings with probability .01. Three models are no more certain than two."""
    for count in (2, 3):
        certain = 0
        for repetition in range(60):
            x = points(200, seed=3000 + repetition)
            means = 0.3 * torch.eye(DIM)[:count]
            models = {f"model {i}": Gaussian(mean) for i, mean in enumerate(means)}
            certain += compare(models, x, critics="linear", folds=3, seed=repetition).best_is_better().max() > 0.95
        assert certain < 8


def test_the_best_of_two_is_judged_from_both_sides():
    """With two models the best is better with probability 2Φ(z) - 1, because it was chosen on the same points. A fifth
    of them is held out from four fifths, which makes the variance larger by a quarter."""
    x = points(300)
    ranking = compare({"a": MODELS["near"], "b": Gaussian(torch.full((DIM,), 0.2))}, x, critics="linear")
    difference = ranking.difference(*ranking.names[::-1])
    expected = math.erf(difference.value / difference.stderr / math.sqrt(1.25) / math.sqrt(2))
    assert ranking.best_is_better()[0] == pytest.approx(expected, abs=4 * math.sqrt(0.25 / 20_000))


def test_rankings_do_not_depend_on_units_or_on_the_number_of_processes():
    x = points(400)
    units = torch.tensor([1000.0, 1.0, 0.001])
    plain = compare({name: model.score(x).detach() for name, model in MODELS.items()}, x, critics="linear", jobs=1)
    again = compare({name: model.score(x).detach() for name, model in MODELS.items()}, x, critics="linear", jobs=2)
    assert plain.to_dict() == again.to_dict()
    scores = {name: model.score(x).detach() / units for name, model in MODELS.items()}
    changed = compare(scores, x * units, critics="linear", jobs=1)
    assert changed.names == plain.names and np.allclose(changed.values, plain.values, rtol=1e-3)


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
        critics=("linear", MLP(DIM, width=8)),
        settings=FitSettings(steps=30, every=10),
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

    compare({"a": from_score(score)}, points(500), critics="linear", folds=3)
    assert sum(seen) == 500


def test_a_model_that_fails_is_reported_in_its_row():
    x = points(300)
    bad = -x.clone()
    bad[17, 1] = math.nan
    ranking = compare({"bad": bad, "good": -x}, x, critics="linear")
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
    ranking = compare(models, x, critics=MLP(DIM, width=8), settings=FitSettings(steps=50, lr=0.001), folds=None)
    assert ranking.names == ("good",) and "finite" in ranking.failures["wild"]


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
        ({"a": object()}, r"models\['a'\]: expected an object with score"),
        ({"a": "nonsense"}, r"models\['a'\]: got 'nonsense', which is no directory or file; texts are paths of arrays"),
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
    with pytest.raises(InputError, match="folds: expected a whole number from 2 to 1000, got 1"):
        compare(MODELS, points(50), folds=1)
    with pytest.raises(InputError, match="level: expected a number between 0 and 1, got 95"):
        compare({"a": MODELS["true"]}, points(100), critics="linear").difference("a", "a").interval(95)
