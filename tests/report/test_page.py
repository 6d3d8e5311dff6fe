"""What every report is: one page that is whole, and that no name can break. See test_browser.py, too."""

import inspect
import re
from html import unescape

import pytest
import torch

from steinscope import InputError, gof_test, train
from steinscope.models import Gaussian
from steinscope.report import report_ranking, report_test, report_training

from helpers import EVIL, rank_points, report_points


def test_whatever_is_given_is_escaped():
    x = report_points()
    html = [
        report_test(gof_test(x, -x, critics="mean"), data=EVIL, model=EVIL),
        report_ranking(rank_points({EVIL: -x, "b": -2 * x, "c" + EVIL: x * float("nan")}), data=EVIL),
        report_training(train(Gaussian(torch.zeros(3)), x, steps=2), data=EVIL, settings={EVIL: EVIL}),
    ]
    for page in html:
        assert "<script>alert" not in page and EVIL in unescape(page)
        assert page.count("<script") == 1


def test_nothing_is_loaded_from_elsewhere():
    x = report_points()
    for page in (report_test(gof_test(x, -x)), report_ranking(rank_points())):
        assert not re.search(r"https?:|//[a-z]", page)
        assert "default-src 'none'" in page


@pytest.mark.parametrize(
    "report, given, message",
    [
        (report_test, {"result": "a"}, "result: expected an object of type TestResult, got str"),
        (
            report_test,
            {"result": gof_test(report_points(), -report_points(), critics="mean"), "explanation": 3},
            "explanation: expected an object of type Explanation",
        ),
        (report_ranking, {"ranking": 3}, "ranking: expected an object of type Ranking, got int"),
        (report_training, {"result": 3}, "result: expected an object of type TrainResult, got int"),
    ],
)
def test_a_report_of_something_else_is_refused(report, given, message):
    with pytest.raises(InputError, match=message):
        inspect.unwrap(report)(**given)
