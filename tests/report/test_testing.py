import re
from dataclasses import replace

import pytest
import torch

from steinscope import gof_test
from steinscope.kernels import ksd_test, mmd_test
from steinscope.report import report_test
from steinscope.report.charts import number

from helpers import generator, report_points, text_of


def test_a_rejection_says_why():
    x = report_points()
    result = gof_test(x, -x)
    html = report_test(result, data="draws.npy", model="standard normal")
    text = text_of(html)
    assert "The model is rejected" in text and "draws.npy" in text and "standard normal" in text
    assert f"{result.pvalue:.3g}".replace("-", "−") in text
    assert re.search(r"x\[1\] spreads \d+% more than the model says", text)
    explanation = result.explain()
    assert f"x[1] {number(explanation.coordinates[1])}" in text
    assert all(str(point.index) in text for point in explanation.worst)
    assert html.count("<svg") == 3 and html.count('<table class="sortable">') == 4


def test_the_words_of_the_field_are_explained():
    x = report_points()
    text = text_of(report_test(gof_test(x, -x)))
    for word in ("critic", "Stein value", "z-score", "prequential"):
        assert re.search(rf"What the words mean.* {word} [A-Z]", text, re.DOTALL)
    assert "Rows are counted from 0" in text and "row 0 is line 2" in text
    assert "What the words mean" not in text_of(report_test(ksd_test(x, -x)))


def test_a_probability_beyond_belief_is_said_to_be_small():
    x = report_points()
    tiny = text_of(report_test(replace(gof_test(x, -x), pvalue=1e-300)))
    assert "with probability below 1e−12" in tiny and "p-value 1e−300" in tiny


def test_finding_nothing_does_not_prove_the_model_right():
    x = torch.randn(200, 2, generator=generator(1))
    text = text_of(report_test(gof_test(x, -x)))
    assert "No misfit was found" in text and "does not prove it right" in text and "may well be chance" in text


@pytest.mark.parametrize("dim", [1, 2, 3, 300])
def test_every_dimension_has_its_picture(dim):
    x = report_points(200, dim)
    html = report_test(gof_test(x, -x, critics=["linear", "mean"]))
    assert html.count("<svg") == 3
    assert ("marker-end" in html) == (dim > 1)
    if dim == 300:
        assert "the largest 200 of 300" in html and "held at their medians" in text_of(html)


def test_kernel_and_split_tests_have_reports_of_what_they_know(short_split):
    x = report_points()
    assert report_test(ksd_test(x, -x)).count("<svg") == 0
    split = report_test(gof_test(x, -x, scheme="split"))
    assert split.count("<svg") == 2 and "Block by block" not in split


def test_only_stein_tests_are_said_to_be_blind_to_shares_of_modes():
    x, other = report_points(), torch.randn(300, 3, generator=generator(1))
    other[:, 1] = 1.5 * other[:, 1]
    mmd = mmd_test(x, other)
    assert not mmd.rejected and "separated modes" not in report_test(mmd)
    ksd = replace(ksd_test(x, -x), pvalue=0.5)
    assert "scores do not tell how the mass is divided between separated modes" in report_test(ksd)
