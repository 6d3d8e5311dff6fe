import math

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as st_numpy
from scipy import stats

from steinscope.gof.combination import BlockSums, cauchy_pvalue, combine_sums, combined_pvalue, soft_maximum
from steinscope.support.normal import upper_tail


def test_the_largest_of_correlated_normals():
    for rho in (0.0, 0.5, 0.95):
        correlation = np.full((3, 3), rho) + (1 - rho) * np.eye(3)
        draws = np.random.default_rng(0).multivariate_normal(np.zeros(3), correlation, size=400_000)
        soft = 0.5 * np.log(np.exp(2 * draws).sum(1))
        for z in ([0.5, 0.0, -1.0], [1.5, 1.0, 0.0], [0.0, 2.2, 0.1]):
            expected = (soft >= soft_maximum(np.array(z))).mean()
            tolerance = 4 * (expected / 2**15) ** 0.5 + 1e-3
            assert combined_pvalue(np.array(z), correlation) == pytest.approx(expected, abs=tolerance)
    # Far out Bonferroni's bound is used, with the most by which the soft maximum can exceed the largest.
    far = combined_pvalue(np.array([6.0, -9.0, -9.0]), np.eye(3))
    assert far == pytest.approx(3 * 0.5 * math.erfc((6 - 0.5 * math.log(3)) / 2**0.5), rel=1e-3)
    assert far > 3 * 0.5 * math.erfc(6 / 2**0.5)


SCORES = st_numpy.arrays(np.float64, st.integers(1, 6), elements=st.floats(-8, 40))


def equal_correlations(count, rho):
    return np.full((count, count), rho) + (1 - rho) * np.eye(count)


@given(SCORES)
def test_the_soft_maximum_is_near_the_largest(z):
    largest = float(z.max())
    assert largest <= soft_maximum(z) <= largest + 0.5 * math.log(len(z)) + 1e-9
    assert soft_maximum(z) == pytest.approx(0.5 * math.log(np.exp(2 * z).sum()))
    assert soft_maximum(z + 1.5) == pytest.approx(soft_maximum(z) + 1.5)


@given(SCORES, st.floats(0, 1))
def test_a_pvalue_is_a_probability(z, rho):
    pvalue = combined_pvalue(z, equal_correlations(len(z), rho))
    # The soft maximum is at least the largest score, so that no p-value is smaller than that of one score alone, but
    # for the error of the draws: their p-values are multiples of 2^-15.
    assert 0 < pvalue <= 1 or (pvalue == 0 and z.max() > 37)
    if len(z) == 1:
        assert pvalue == pytest.approx(upper_tail(z[0]), rel=1e-9, abs=0)


def test_draws_count_the_statistic_itself():
    """None of the draws is as large as this, and still the p-value is not zero."""
    pvalue = combined_pvalue(np.array([4.68, *[-3.0] * 7]), np.eye(8))
    assert 1 / (1 + 2**15) <= pvalue < 0.01


@given(SCORES, st.floats(0, 1), st.floats(0, 5), st.integers(0, 5))
@example(np.array([4.3, 0.0, 0.0, 0.0, 0.0]), 0.0, 0.1, 0)
def test_more_misfit_never_makes_a_pvalue_larger(z, rho, more, position):
    correlation = equal_correlations(len(z), rho)
    worse = z.copy()
    worse[position % len(z)] += more
    assert combined_pvalue(worse, correlation) <= combined_pvalue(z, correlation)


def test_scores_and_correlations_are_those_of_the_values():
    """Against the definition: sums over roots of sums of squares, for all points and block by block."""
    values = np.random.default_rng(0).normal(0.3, 1.0, size=(2, 9))
    blocks = [BlockSums.empty(2) for _ in range(3)]
    for block, part in zip(blocks, np.split(values, [4, 6], axis=1), strict=True):
        block.add(part[:, :1])
        others = BlockSums.empty(2)
        others.add(part[:, 1:])
        block.join(others)
    found = combine_sums(blocks)
    norm = np.sqrt((values**2).sum(1))
    np.testing.assert_allclose(found.z, values.sum(1) / norm)
    np.testing.assert_allclose(found.norm, norm)
    np.testing.assert_allclose(found.correlation, values @ values.T / np.outer(norm, norm))
    for block, rows in enumerate((slice(0, 4), slice(4, 6), slice(6, 9))):
        block_norm = np.sqrt((values[:, rows] ** 2).sum(1))
        np.testing.assert_allclose(found.block_z[:, block], values[:, rows].sum(1) / block_norm)
        np.testing.assert_allclose(found.block_weight[:, block], block_norm / norm)


def test_the_cauchy_combination_is_that_of_scipy():
    """Weighted means of Cauchy variables, by the distribution itself."""
    rng = np.random.default_rng(0)
    for count in (1, 2, 5):
        pvalues, weights = rng.uniform(1e-12, 0.99, count), rng.uniform(0.1, 1.0, count)
        mean = (weights * stats.cauchy.isf(pvalues)).sum() / weights.sum()
        assert cauchy_pvalue(pvalues.tolist(), weights.tolist()) == pytest.approx(stats.cauchy.sf(mean), rel=1e-9)
    # Tiny p-values are not rounded to zero or to those of tan, and one that is zero stays the smallest of all.
    assert cauchy_pvalue([1e-200, 0.5], [1, 1]) == pytest.approx(2e-200)
    assert cauchy_pvalue([0.0, 0.5], [1, 1]) == 0.0
    # So small that one over it is no number: no warning either.
    assert cauchy_pvalue([1e-310, 0.5], [1, 1]) == 0.0
    # One order that has seen nothing does not outweigh the others.
    assert cauchy_pvalue([1.0, 0.001], [1, 1]) == cauchy_pvalue([0.99, 0.001], [1, 1]) < 0.003


def test_the_cauchy_combination_keeps_the_level_under_dependence():
    """20 000 draws of four p-values that depend on each other, at three correlations."""
    rng = np.random.default_rng(1)
    for rho in (0.0, 0.5, 0.9):
        z = math.sqrt(rho) * rng.standard_normal((20_000, 1)) + math.sqrt(1 - rho) * rng.standard_normal((20_000, 4))
        merged = np.array([cauchy_pvalue(row, [1.0] * 4) for row in stats.norm.sf(z).tolist()])
        for level in (0.05, 0.01):
            # Known to exceed the level by a little at moderate correlations.
            slack = 4 * math.sqrt(level / 20_000)
            assert level - slack - 0.15 * level < (merged <= level).mean() < level + slack + 0.15 * level
