"""What reports say. That they work in a browser is seen in test_browser.py."""

import pickle
import re
from dataclasses import replace
from html import unescape

import numpy as np
import pytest
import torch

from steinscope import compare, gof_test, train
from steinscope.comparison import Ranking
from steinscope.critics import Linear
from steinscope.errors import InputError
from steinscope.kernels import ksd_test, mmd_test
from steinscope.models import Gaussian
from steinscope.report import report_ranking, report_test, report_training
from steinscope.report.charts import line_chart, number

from helpers import generator

EVIL = "<script>alert(1)</script>\"'&"


def points(n=300, dim=3):
    x = torch.randn(n, dim, generator=generator(0))
    x[:, 1 % dim] = 1.5 * x[:, 1 % dim]
    return x


def moments(x):
    return x.mean(0), torch.cov(x.T)


def text_of(html):
    return re.sub(r"\s+", " ", unescape(re.sub(r"<[^>]*>", " ", html)))


def test_a_rejection_says_why():
    x = points()
    result = gof_test(x, -x)
    html = report_test(result, data="draws.npy", model="standard normal")
    text = text_of(html)
    assert "The model is rejected" in text and "draws.npy" in text and "standard normal" in text
    assert f"{result.pvalue:.3g}".replace("-", "−") in text
    assert "x[1] spreads more than the model says" in text
    explanation = result.explain()
    assert f"x[1] {number(explanation.coordinates[1])}" in text
    assert all(str(point.index) in text for point in explanation.worst)
    assert html.count("<svg") == 3 and html.count('<table class="sortable">') == 4


def test_finding_nothing_does_not_prove_the_model_right():
    x = torch.randn(200, 2, generator=generator(1))
    text = text_of(report_test(gof_test(x, -x)))
    assert "No misfit was found" in text and "does not prove it right" in text and "may well be chance" in text


@pytest.mark.parametrize("dim", [1, 2, 3, 300])
def test_every_dimension_has_its_picture(dim):
    x = points(200, dim)
    html = report_test(gof_test(x, -x, critics=["linear", "mean"]))
    assert html.count("<svg") == 3
    assert ("marker-end" in html) == (dim > 1)
    if dim == 300:
        assert "the largest 200 of 300" in html and "held at their medians" in text_of(html)


def test_kernel_and_split_tests_have_reports_of_what_they_know():
    x = points()
    assert report_test(ksd_test(x, -x)).count("<svg") == 0
    split = report_test(gof_test(x, -x, scheme="split"))
    assert split.count("<svg") == 2 and "Block by block" not in split


def test_only_stein_tests_are_said_to_be_blind_to_shares_of_modes():
    x, other = points(), torch.randn(300, 3, generator=generator(1))
    other[:, 1] = 1.5 * other[:, 1]
    mmd = mmd_test(x, other)
    assert not mmd.rejected and "separated modes" not in report_test(mmd)
    ksd = replace(ksd_test(x, -x), pvalue=0.5)
    assert "no Stein test sees how the mass is divided between separated modes" in report_test(ksd)


def rank(models=None, **options):
    x = points()
    models = models or {"narrow": Gaussian(torch.zeros(3), std=0.5), "true": -x, "broken": x * float("nan")}
    return compare(models, x, critic=Linear(3), folds=2, **options)


def test_a_ranking_has_its_table_and_both_charts():
    ranking = rank()
    html = report_ranking(ranking, data="draws.npy")
    text = text_of(html)
    assert "true fits best" in text and "narrow" in text and html.count("<svg") == 2
    for row in ranking.rows()[:2]:
        assert number(row["lsd"]) in text and number(row["fisher_bound_lower"]) in text
    assert "broken : row 0 holds nan" in text


def test_what_each_model_gets_wrong_is_listed():
    ranking = rank()
    text = text_of(report_ranking(ranking))
    explanation = ranking.estimates["true"].explain()
    i = explanation.order[0]
    assert i == 1 and f"x[1]: {number(float(explanation.coordinates[i]), 3)} ±" in text
    saved = pickle.loads(pickle.dumps(ranking))
    assert "What each model gets wrong" not in report_ranking(saved)


def test_every_pair_is_compared():
    x = points()
    ranking = rank({f"m{i}": -x * (1 + 0.1 * i) for i in range(4)})
    text = text_of(report_ranking(ranking))
    difference = ranking.difference("m3", "m1")
    assert f"{number(difference.value, 3)} ± {number(difference.stderr, 2)}" in text


def test_one_model_alone():
    ranking = rank({"only": -points()})
    assert isinstance(ranking, Ranking)
    html = report_ranking(ranking)
    assert "only is the only model" in html and html.count("<svg") == 1


def test_a_doubtful_first_place_is_called_so():
    x = points()
    assert "comes first, but not beyond doubt" in report_ranking(rank({"a": -x, "b": -x}))


def test_a_ranking_can_show_tests_and_densities():
    x = points(300, 2)
    models = {"narrow": Gaussian(torch.zeros(2), std=0.5), EVIL: torch.distributions.MultivariateNormal(*moments(x))}
    ranking = compare({**models, "scores": -x}, x, critic=Linear(2), folds=2)
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
        report_ranking(rank(), models={"true": Gaussian(torch.zeros(3))}, points=given)


@pytest.mark.parametrize("dim", [1, 2, 5])
def test_a_training_run_has_curves_and_what_was_learned(dim):
    x = points(300, dim)
    model = Gaussian(torch.zeros(dim))
    result = train(model, x, steps=30, log_every=10)
    html = report_training(result, data="moons", points=x.numpy(), samples=model.sample(50).numpy())
    text = text_of(html)
    assert "Gaussian, 30 steps of LearnedStein" in text and "trained on moons by lsd" in text
    assert html.count("<svg") == (5 if dim == 2 else 4) and ("data:image/png" in html) == (dim == 2)
    assert number(float(x[:, 0].double().numpy().std())) in text
    assert "auxiliary_lr" in text


def test_a_run_of_one_log_point_has_dots_and_settings_in_words():
    result = train(Gaussian(torch.zeros(5)), points(300, 5), steps=10, lr_decay=True, noise=0.3)
    html = report_training(result, points=points(300, 5).numpy(), samples=points(50, 5).numpy())
    assert html.count('<circle class="dot"') == 3 and '<path class="curve"' not in html
    text = text_of(html)
    assert "0.3, to zero over 80% of 10 steps" in text and "to zero over 10 steps" in text
    assert "outruns its critic" in text and "in the two coordinates that spread most" in text


def test_ticks_are_plain_numbers_and_leave_room_for_the_name_of_the_axis():
    step, values = np.arange(0, 30001, 1000), np.linspace(-0.003, -0.001, 31)
    chart = line_chart("Loss", step, values, "step", "loss", "A curve")
    assert ">10000<" in chart and "e+" not in chart and ">−0.0025<" in chart
    end = float(re.search(r'x="([\d.]+)" y="[\d.]+" text-anchor="end">−0.0025', chart)[1])
    # Seven letters of six units, and the name takes the first sixteen.
    assert end - 6 * len("−0.0025") >= 16


def test_a_run_without_a_critic_or_points():
    result = train(Gaussian(torch.zeros(2)), points(300, 2), objective="score-matching", steps=10)
    html = report_training(result)
    assert html.count("<svg") == 2 and "Neither the density nor samples" in html


def test_whatever_is_given_is_escaped():
    x = points()
    html = [
        report_test(gof_test(x, -x, critics="mean"), data=EVIL, model=EVIL),
        report_ranking(rank({EVIL: -x, "b": -2 * x, "c" + EVIL: x * float("nan")}), data=EVIL),
        report_training(train(Gaussian(torch.zeros(3)), x, steps=2), data=EVIL, settings={EVIL: EVIL}),
    ]
    for page in html:
        assert "<script>alert" not in page and EVIL in unescape(page)
        assert page.count("<script") == 1


def test_nothing_is_loaded_from_elsewhere():
    x = points()
    for page in (report_test(gof_test(x, -x)), report_ranking(rank())):
        assert not re.search(r"https?:|//[a-z]", page)
        assert "default-src 'none'" in page


def test_numbers():
    assert [number(value) for value in (-0.5, 1e-9, float("nan"), None)] == ["−0.5", "1e−09", "–", "–"]
