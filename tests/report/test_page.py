"""What every report is: one page that is whole, and that no name can break. See test_browser.py, too."""

import re
from html import unescape

import torch

from steinscope import gof_test, train
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
