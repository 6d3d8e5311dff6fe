import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from steinscope.support.normal import normal_quantile, upper_tail


@given(st.floats(-30, 30))
def test_the_tail_is_that_of_scipy(z):
    assert upper_tail(z) == pytest.approx(stats.norm.sf(z), rel=1e-12)


@given(st.floats(1e-9, 1 - 1e-9))
def test_the_quantile_undoes_the_tail(probability):
    assert normal_quantile(probability) == pytest.approx(stats.norm.ppf(probability), rel=1e-7, abs=1e-9)
    assert 1 - upper_tail(normal_quantile(probability)) == pytest.approx(probability, rel=1e-7)


def test_far_out():
    assert upper_tail(math.inf) == 0.0 and upper_tail(-math.inf) == 1.0 and math.isnan(upper_tail(math.nan))
