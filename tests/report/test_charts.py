import re

import numpy as np

from steinscope.report.charts import line_chart, number


def test_ticks_are_plain_numbers_and_leave_room_for_the_name_of_the_axis():
    step, values = np.arange(0, 30001, 1000), np.linspace(-0.003, -0.001, 31)
    chart = line_chart("Loss", step, values, "step", "loss", "A curve")
    assert ">10000<" in chart and "e+" not in chart and ">−0.0025<" in chart
    end = float(re.search(r'x="([\d.]+)" y="[\d.]+" text-anchor="end">−0.0025', chart)[1])
    # Seven letters of six units, and the name takes the first sixteen.
    assert end - 6 * len("−0.0025") >= 16


def test_numbers():
    assert [number(value) for value in (-0.5, 1e-9, float("nan"), None)] == ["−0.5", "1e−09", "–", "–"]
