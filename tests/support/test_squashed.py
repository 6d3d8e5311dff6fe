import numpy as np

from steinscope.support.squashed import squashed_below


def below(*values, half=0.0):
    return squashed_below(np.array(values), np.full(len(values), half))


def test_one_value_far_from_the_others_asks_for_a_logarithmic_axis():
    assert below(1.0, 2.0, 3.0, 40.1) == 1.0 and below(1.0, 2.0, 3.0, 40.0) is None
    assert below(0.03, 500.0) == 0.01
    assert below(-3.0, -0.2, 2.0, 900.0) == 0.1


def test_the_linear_part_holds_what_is_not_told_from_zero():
    assert below(0.0, 0.1, 0.2, 900.0, half=5.0) == 1.0


def test_what_cannot_be_drawn_so_is_linear():
    assert below(5.0) is None and below(0.0, 0.0, 3.0) is None and below(1.0, np.inf) is None
