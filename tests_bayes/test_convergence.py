"""r̂ and effective sample sizes are ArviZ's."""

import arviz
import numpy as np
import pytest

from steinscope.bayes.convergence import bulk_ess, rhat, tail_ess


def walk(chains, n, rho, seed):
    noise = np.random.default_rng(seed).normal(size=(chains, n))
    x = noise.copy()
    for t in range(1, n):
        x[:, t] = rho * x[:, t - 1] + noise[:, t]
    return x


@pytest.mark.parametrize("rho", [-0.6, 0.0, 0.5, 0.9])
@pytest.mark.parametrize("chains, n", [(4, 1000), (4, 501), (2, 200)])
@pytest.mark.parametrize("kind", ["plain", "moved", "rounded"])
def test_they_are_those_of_arviz(chains, n, rho, kind):
    x = walk(chains, n, rho, seed=n)
    if kind == "moved":
        x[0] += 0.5
    if kind == "rounded":
        x = x.round(1)
    assert rhat(x) == pytest.approx(float(arviz.rhat(x)), rel=1e-9)
    assert bulk_ess(x) == pytest.approx(float(arviz.ess(x, method="bulk")), rel=1e-6)
    assert tail_ess(x) == pytest.approx(float(arviz.ess(x, method="tail")), rel=1e-6)
