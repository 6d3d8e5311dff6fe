import math
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from steinscope import InputError
from steinscope.support.checks import (
    check_choice,
    check_count,
    check_level,
    check_number,
    check_sample_size,
    check_seed,
    check_steps,
    check_text,
)

WHOLE = st.integers(-(2**70), 2**70)
NUMPY_WHOLE = st.one_of(
    *(
        st.integers(int(np.iinfo(kind).min), int(np.iinfo(kind).max)).map(kind)
        for kind in (np.int8, np.uint8, np.int32, np.int64, np.uint64)
    )
)
FINITE = st.floats(allow_nan=False, allow_infinity=False)
NUMBERS = st.one_of(FINITE, st.integers(-(2**60), 2**60), FINITE.map(np.float64), st.floats(width=32).map(np.float32))
# What is no number, whatever the bounds.
OTHERS = st.one_of(
    st.none(),
    st.booleans(),
    st.booleans().map(np.bool_),
    st.text(max_size=5),
    st.binary(max_size=3),
    st.complex_numbers(),
    st.lists(st.integers(), max_size=2),
    st.sampled_from([math.nan, math.inf, -math.inf, np.float64("nan"), Decimal(1), {}, object(), np.zeros(2), len]),
)


def assert_refused(check, value, *arguments, **options):
    """One line that names the argument and says what is expected."""
    with pytest.raises(InputError) as caught:
        check("argument", value, *arguments, **options)
    assert caught.value.argument == "argument" and str(caught.value).startswith("argument: expected ")
    assert "\n" not in str(caught.value)


@given(NUMBERS, st.none() | FINITE, st.none() | FINITE, st.none() | FINITE, st.none() | FINITE)
def test_numbers_within_bounds_come_back_as_floats(value, over, least, under, most):
    bounds, number = {"over": over, "least": least, "under": under, "most": most}, float(value)
    is_good = (
        math.isfinite(number)
        and (over is None or number > over)
        and (least is None or number >= least)
        and (under is None or number < under)
        and (most is None or number <= most)
    )
    if not is_good:
        return assert_refused(check_number, value, **bounds)
    came = check_number("argument", value, **bounds)
    assert type(came) is float and came == number


def test_single_precision_is_compared_with_bounds_in_double_precision():
    """NumPy would take a bound beyond single precision for infinity, with a warning, and 0.1 for its own 0.1."""
    assert check_number("argument", np.float32(2), over=-1e300, most=1e300) == 2.0
    assert check_number("argument", np.float32(0.1), over=0.1) == float(np.float32(0.1)) > 0.1
    assert_refused(check_number, np.float32(0.1), most=0.1)


@pytest.mark.parametrize("value", [10**400, -(10**400), Fraction(10**400, 3)])
def test_numbers_beyond_double_precision_are_refused(value):
    assert_refused(check_number, value)
    assert_refused(check_level, value)


@given(WHOLE | NUMPY_WHOLE, st.integers(-100, 100), st.none() | st.integers(-100, 2**65))
def test_counts_within_bounds_come_back_as_whole_numbers(value, least, most):
    if value < least or (most is not None and value > most):
        return assert_refused(check_count, value, least, most)
    came = check_count("argument", value, least, most)
    assert type(came) is int and came == int(value)


@given(WHOLE | NUMPY_WHOLE)
def test_seeds(value):
    if not 0 <= value < 2**63:
        return assert_refused(check_seed, value)
    came = check_seed("argument", value)
    assert type(came) is int and came == int(value)


@given(NUMBERS)
def test_levels_lie_between_zero_and_one(value):
    if not 0 < value < 1:
        return assert_refused(check_level, value)
    came = check_level("argument", value)
    assert type(came) is float and came == float(value)


@given(OTHERS)
def test_what_is_no_number_is_refused(value):
    for check in (check_number, check_count, check_level, check_seed):
        assert_refused(check, value)


@given(FINITE.filter(lambda value: value != 0))
def test_a_float_is_no_count_even_if_it_is_whole(value):
    assert_refused(check_count, float(round(value)) if abs(value) < 1e300 else value, -(10**300))
    assert_refused(check_seed, value)


def test_fractions_are_numbers():
    assert check_number("argument", Fraction(1, 4), over=0) == 0.25


@given(st.lists(st.text(max_size=4), min_size=1, max_size=4), st.text(max_size=4))
def test_choices(choices, value):
    if value not in choices:
        return assert_refused(check_choice, value, choices)
    assert check_choice("argument", value, choices) == value


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: check_number("lr", 0, over=0), "lr: expected a positive number, got 0"),
        (lambda: check_number("lr", 1, over=2), "lr: expected a number above 2, got 1"),
        (lambda: check_number("betas", 1, least=0, under=1), "betas: expected a number from 0 to below 1, got 1"),
        (lambda: check_number("share", 2, least=0, most=1), "share: expected a number from 0 to 1, got 2"),
        (lambda: check_number("decay", -1, least=0), "decay: expected a number from 0 on, got -1"),
        (lambda: check_number("value", math.nan), "value: expected a finite number, got nan"),
        (lambda: check_level("alpha", 2), "alpha: expected a number between 0 and 1, got 2"),
        (lambda: check_count("steps", 2.0), "steps: expected a whole number from 1 on, got 2.0"),
        (lambda: check_count("blocks", 9, 2, 5), "blocks: expected a whole number from 2 to 5, got 9"),
        (lambda: check_steps("steps", 2**62), f"steps: expected a whole number from 1 to 1000000000, got {2**62}"),
        (lambda: check_sample_size("n", 2**62), f"n: expected a whole number from 1 to 100000000, got {2**62}"),
        (lambda: check_text("data", np.zeros(2)), "data: expected a text, got array([0., 0.])"),
        (lambda: check_seed("seed", -1), "seed: expected a whole number from 0 to 2^63 - 1, got -1"),
        (lambda: check_choice("kernel", "a", ("b",)), "kernel: expected \"b\", got 'a'"),
        (lambda: check_choice("kernel", "a", ("b", "c", 3)), 'kernel: expected "b", "c" or 3, got \'a\''),
    ],
)
def test_messages(call, message):
    with pytest.raises(InputError) as caught:
        call()
    assert str(caught.value) == message


@pytest.mark.parametrize(
    "value", [np.zeros((3, 3)), np.zeros(2), [[1], "a\nb"], "a\nb"], ids=["matrix", "vector", "list", "text"]
)
def test_whatever_comes_the_message_is_one_line(value):
    for check in (check_number, check_count, check_level, check_seed):
        assert_refused(check, value)
    assert_refused(check_choice, value, ("a", "b"))
