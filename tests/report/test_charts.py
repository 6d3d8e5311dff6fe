import re

import numpy as np

from steinscope.report.charts import interval_chart, line_chart, number


def test_ticks_are_plain_numbers_and_leave_room_for_the_name_of_the_axis():
    step, values = np.arange(0, 30001, 1000), np.linspace(-0.003, -0.001, 31)
    chart = line_chart("Loss", step, values, "step", "loss", "A curve")
    assert ">10000<" in chart and "e+" not in chart and ">−0.0025<" in chart
    end = float(re.search(r'x="([\d.]+)" y="[\d.]+" text-anchor="end">−0.0025', chart)[1])
    # Seven letters of six units, and the name takes the first sixteen.
    assert end - 6 * len("−0.0025") >= 16


def test_numbers():
    assert [number(value) for value in (-0.5, 1e-9, float("nan"), None)] == ["−0.5", "1e−09", "–", "–"]
    assert [number(value) for value in (127_412.0, -98_765.4, 2e8)] == ["127400", "−98770", "2e+08"]


def dots(chart):
    return [float(place) for place in re.findall(r'class="dot" cx="([\d.]+)"', chart)]


def test_one_bad_model_does_not_squash_the_others():
    values = np.array([8.0, 27.0, 31.0, 127_000.0])
    chart = interval_chart("LSD", list("abcd"), values, values - 2, values + 2, "discrepancy", "")
    a, b, c, d = dots(chart)
    # From 8 to 27 is more than a twentieth of the picture, where it would be a thirtieth of a unit.
    assert a + 18 < b < c < d and "discrepancy, log scale" in chart
    assert [f">{tick}<" in chart for tick in (0, 10, 100, 1000, 10000, 100000)] == [True] * 6
    values = np.array([-5.0, -2.0, 3.0, 8000.0])
    chart = interval_chart("LSD", list("abcd"), values, values - 20, values + 20, "discrepancy", "")
    zero = float(re.search(r'class="zero" d="M([\d.]+)', chart)[1])
    a, b, c, d = dots(chart)
    assert a < b < zero < c < d and ">−10<" in chart


def test_values_alike_have_a_linear_axis():
    values = np.array([0.4, 8.4, 38.8, 39.6])
    chart = interval_chart("LSD", list("abcd"), values, values - 2, values + 2, "discrepancy", "")
    assert "log scale" not in chart
    a, b, c, d = dots(chart)
    assert abs((b - a) / (c - b) - 8.0 / 30.4) < 0.01 and d > c
