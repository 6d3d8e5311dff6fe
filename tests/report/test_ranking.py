import inspect
import pickle
import re

import pytest
import torch

from steinscope import InputError, compare, from_log_prob, gof_test
from steinscope.comparison import Ranking
from steinscope.models import Gaussian
from steinscope.report import report_ranking
from steinscope.report.charts import number

from helpers import EVIL, rank_points, report_points, text_of


def moments(x):
    return x.mean(0), torch.cov(x.T)


def test_a_ranking_has_its_table_and_both_charts():
    ranking = rank_points()
    html = report_ranking(ranking, data="draws.npy")
    text = text_of(html)
    assert "true fits best" in text and "narrow" in text and html.count("<svg") == 2
    for row in ranking.rows()[:2]:
        assert number(row["lsd"]) in text and number(row["fisher_bound_lower"]) in text
    assert "broken : row 0 holds nan" in text


def test_the_words_of_the_field_are_explained_and_a_bad_model_leaves_room():
    x = report_points()
    text = text_of(report_ranking(rank_points({"right": -x, "wide": -0.5 * x, "narrow": -300 * x})))
    for word in ("critic", "Stein value", "discrepancy", "Fisher ≥", "λ"):
        assert re.search(rf"What the words mean.* {word} [A-Z]", text, re.DOTALL)
    assert "discrepancy, log scale" in text and "difference, log scale" in text


def test_what_each_model_gets_wrong_is_listed():
    ranking = rank_points()
    text = text_of(report_ranking(ranking))
    explanation = ranking.estimates["true"].explain()
    i = explanation.order[0]
    assert i == 1 and f"x[1]: {number(float(explanation.coordinates[i]), 3)} ±" in text
    saved = pickle.loads(pickle.dumps(ranking))
    assert "What each model gets wrong" not in report_ranking(saved)


def test_every_pair_is_compared():
    x = report_points()
    ranking = rank_points({f"m{i}": -x * (1 + 0.1 * i) for i in range(4)})
    text = text_of(report_ranking(ranking))
    difference = ranking.difference("m3", "m1")
    assert f"{number(difference.value, 3)} ± {number(difference.stderr, 2)}" in text


def test_one_model_alone():
    ranking = rank_points({"only": -report_points()})
    assert isinstance(ranking, Ranking)
    html = report_ranking(ranking)
    assert "only is the only model" in html and html.count("<svg") == 1


def test_a_doubtful_first_place_is_called_so():
    x = report_points()
    assert "comes first, but not beyond doubt" in report_ranking(rank_points({"a": -x, "b": -x}))


def test_the_sentence_says_the_probability_of_the_table():
    x = report_points()
    ranking = rank_points({"a": -x, "b": -x})
    text = text_of(report_ranking(ranking))
    assert ranking.best_is_better()[0] == 0 and "P(best is better) is 0.000" in text and "0.500" not in text


def test_a_ranking_can_show_tests_and_densities():
    x = report_points(300, 2)
    models = {"narrow": Gaussian(torch.zeros(2), std=0.5), EVIL: torch.distributions.MultivariateNormal(*moments(x))}
    ranking = compare({**models, "scores": -x}, x, critics="linear", folds=2)
    tests = {name: gof_test(x, models[name]) for name in models}
    html = report_ranking(ranking, tests=tests, models=models, points=x.numpy())
    text = text_of(html)
    # A ranking has two charts, and there are two models with a density.
    assert html.count("<svg") == 4 and html.count("data:image/png") == 2
    assert f"narrow rejected at 0.05 {number(tests['narrow'].pvalue, 3)} {tests['narrow'].strongest.name}" in text
    assert "nothing found at 0.05" in text and "<script>alert" not in html and html.count("<script") == 1


@pytest.mark.parametrize("given", [None, torch.zeros(10, 3).numpy()])
def test_densities_need_points_in_the_plane(given):
    with pytest.raises(InputError, match=r"points: densities of models are drawn below points \(n, 2\), got"):
        report_ranking(rank_points(), models={"true": Gaussian(torch.zeros(3))}, points=given)


@pytest.mark.parametrize(
    "given, message",
    [
        ({"points": -1}, "points: expected rows of points, got a single number"),
        ({"points": [[1.0, float("nan")]]}, "points: row 0 holds nan"),
        ({"data": torch.zeros(3)}, "data: expected a text, got tensor"),
        ({"tests": [1]}, "tests: expected them by the names of the models, got list"),
        ({"models": Gaussian(torch.zeros(2)), "points": torch.zeros(3, 2)}, "models: expected them by the names"),
    ],
)
def test_bad_input(given, message):
    with pytest.raises(InputError, match=message):
        inspect.unwrap(report_ranking)(rank_points(), **given)


def test_a_density_without_mass_near_the_points_and_points_that_are_all_the_same():
    x = report_points(300, 2)
    nowhere = from_log_prob(lambda z: torch.full_like(z[:, 0], -torch.inf))
    ranking = compare({"a": -x}, x, critics="linear", folds=2)
    for model, points in ((nowhere, x), (Gaussian(torch.zeros(2)), torch.zeros(5, 2))):
        html = report_ranking(ranking, models={"a": model}, points=points.numpy())
        assert html.count("data:image/png") == 1 and "nan" not in text_of(html)
