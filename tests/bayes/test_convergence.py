import math

import numpy as np
import pytest

from steinscope.bayes.convergence import bulk_ess, rhat, tail_ess


def walk(chains, n, rho, seed=0):
    """Autoregressive chains, which have the autocorrelation time (1 + ρ) / (1 - ρ)."""
    noise = np.random.default_rng(seed).normal(size=(chains, n))
    x = noise / math.sqrt(1 - rho**2)
    for t in range(1, n):
        x[:, t] = rho * x[:, t - 1] + noise[:, t]
    return x


@pytest.mark.parametrize("rho", [-0.5, 0.0, 0.5, 0.9])
def test_effective_draws_of_autoregressive_chains(rho):
    x = walk(4, 20_000, rho)
    assert bulk_ess(x) == pytest.approx(x.size * (1 - rho) / (1 + rho), rel=0.15)
    # Being in a tail is forgotten sooner than the place itself.
    assert rho < 0 or 0.9 * bulk_ess(x) < tail_ess(x) < 1.1 * x.size


def test_chains_that_agree_have_an_rhat_of_one():
    assert rhat(walk(4, 1000, 0.5)) < 1.01
    assert rhat(np.full((4, 100), 2.0)) == 1.0


@pytest.mark.parametrize(
    "change",
    [lambda x: x + np.array([0, 0, 0, 1.0])[:, None], lambda x: x * np.array([1, 1, 1, 3.0])[:, None]],
    ids=["centre", "spread"],
)
def test_chains_that_differ_do_not(change):
    assert rhat(change(walk(4, 1000, 0.0))) > 1.05


def test_a_single_chain_is_compared_with_itself():
    drift = np.linspace(0, 3, 1000) + walk(1, 1000, 0.0)
    assert rhat(drift) > 1.2 and bulk_ess(drift) < 20


def test_ranks_do_not_depend_on_the_scale_of_a_quantity():
    x = walk(4, 500, 0.3)
    assert rhat(np.exp(5 * x)) == pytest.approx(rhat(x), rel=0.02) and bulk_ess(np.exp(5 * x)) == bulk_ess(x)
