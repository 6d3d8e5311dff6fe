import math

import pytest

from steinscope import InputError
from steinscope.kernels import ksd_test, ksdagg_test

from helpers import normal


@pytest.mark.parametrize("shift", [0.0, 0.3])
def test_with_one_width_it_is_the_ksd_test(shift):
    x = normal(100, 2)
    one, ksd = ksdagg_test(x, shift - x, factors=(1.0,), seed=3), ksd_test(x, shift - x, kernel="imq", seed=3)
    assert one.pvalue == pytest.approx(ksd.pvalue) and one.statistic == pytest.approx(-math.log(ksd.pvalue))


def test_its_pvalue_lies_between_the_smallest_one_and_bonferroni():
    x, factors = normal(100, 2), (0.25, 1.0, 4.0)
    single = [ksdagg_test(x, 0.2 - x, factors=(factor,)).pvalue for factor in factors]
    together = ksdagg_test(x, 0.2 - x, factors=factors)
    assert min(single) <= together.pvalue <= min(1.0, 3 * min(single))
    assert together.statistic == pytest.approx(-math.log(min(single)))
    assert f"smallest p-value at {factors[single.index(min(single))]:g} median distances" in together.method


def test_bad_factors():
    x = normal(30, 2)
    with pytest.raises(InputError, match="factors: expected a positive number, got 0.0"):
        ksdagg_test(x, -x, factors=(1.0, 0.0))
