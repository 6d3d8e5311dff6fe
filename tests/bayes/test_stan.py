"""Draws of Stan, by a stand-in for a bridgestan.StanModel: BridgeStan needs a compiler and the sources of Stan."""

import numpy as np
import pytest

from steinscope import InputError, gof_test
from steinscope.bayes import from_posterior, from_stan

from containers import Array, Dataset

RNG = np.random.default_rng(0)
CHAINS, COUNT = 4, 100


class StanModel:
    """What BridgeStan documents, for theta ~ N(0, 1) (a 2 × 2 matrix), tau ~ Exponential(1), p ~ Beta(2, 2)."""

    def param_names(self, *, include_tp=False, include_gq=False):
        # Stan lists matrices column by column.
        return ["theta.1.1", "theta.2.1", "theta.1.2", "theta.2.2", "tau", "p"]

    def param_unc_names(self):
        return self.param_names()

    def param_unconstrain(self, theta):
        assert theta.flags["C_CONTIGUOUS"] and theta.dtype == np.float64
        return np.array([*theta[:4], np.log(theta[4]), np.log(theta[5] / (1 - theta[5]))])

    def log_density_gradient(self, theta_unc, *, propto=True, jacobian=True):
        assert propto and jacobian
        theta, u, v = theta_unc[:4], theta_unc[4], theta_unc[5]
        p = 1 / (1 + np.exp(-v))
        value = -0.5 * (theta**2).sum() - np.exp(u) + u + 2 * np.log(p) + 2 * np.log(1 - p)
        return value, np.array([*-theta, 1 - np.exp(u), 2 - 4 * p])


def parts():
    theta = RNG.normal(size=(CHAINS, COUNT, 2, 2))
    tau, p = RNG.exponential(size=(CHAINS, COUNT)), RNG.beta(2, 2, size=(CHAINS, COUNT))
    jacobian = np.log(tau) + np.log(p * (1 - p))
    lp = -0.5 * (theta**2).sum((2, 3)) - tau + np.log(p * (1 - p)) + jacobian + 7
    return theta, tau, p, lp


class CmdStanMCMC:
    """As much of the fit of CmdStanPy as is used: draws (draws, chains, columns) and the names of the columns."""

    def __init__(self, theta, tau, p, lp):
        self.column_names = (
            "lp__",
            "divergent__",
            "tau",
            "p",
            *(f"theta[{i},{j}]" for j in (1, 2) for i in (1, 2)),
            "y",
        )
        columns = [lp, np.zeros_like(lp), tau, p, *(theta[:, :, i, j] for j in (0, 1) for i in (0, 1)), lp]
        self._draws = np.stack(columns, 2).swapaxes(0, 1)

    def draws(self, *, concat_chains=False):
        assert not concat_chains
        return self._draws


def container(theta, tau, p, lp):
    dims = ["chain", "draw"]
    coords = {"row": Array(np.array(["a", "b"]), ["row"])}
    posterior = Dataset(
        theta=Array(theta, [*dims, "row", "column"], coords), tau=Array(tau, dims), p=Array(p, dims), y=Array(lp, dims)
    )
    return {"posterior": posterior, "sample_stats": Dataset(lp=Array(lp, dims))}


@pytest.mark.parametrize("kind", [CmdStanMCMC, container])
def test_draws_are_unconstrained_and_named(kind):
    theta, tau, p, lp = parts()
    draws = from_stan(kind(theta, tau, p, lp), StanModel())
    by_columns = theta.swapaxes(2, 3).reshape(CHAINS, COUNT, 4)
    expected = np.concatenate([by_columns, np.log(tau)[..., None], np.log(p / (1 - p))[..., None]], 2)
    assert np.allclose(draws.x, expected) and np.allclose(draws.scores[..., :4], -by_columns)
    assert np.allclose(draws.scores[..., 4], 1 - tau) and np.allclose(draws.scores[..., 5], 2 - 4 * p)
    matrix = ["[1,1]", "[2,1]", "[1,2]", "[2,2]"] if kind is CmdStanMCMC else ["[a, 0]", "[b, 0]", "[a, 1]", "[b, 1]"]
    assert draws.names == (*(f"theta{index}" for index in matrix), "log(tau)", "unconstrained(p)")
    assert np.allclose(draws.log_prob, lp - 7)
    assert not gof_test(draws, critics="closed form").rejected


def test_a_model_with_other_data_is_seen():
    theta, tau, p, lp = parts()
    with pytest.raises(InputError, match="model: its log-density differs from the sampler's by .* is it the model"):
        from_stan(CmdStanMCMC(theta, tau, p, lp + tau), StanModel())


def test_the_model_is_known_by_its_type():
    assert from_posterior(container(*parts()), StanModel()).dim == 6


def test_bad_fits():
    fit = container(*parts())
    del fit["posterior"].data_vars["tau"]
    with pytest.raises(InputError, match="the model has 'tau', of which there are no draws"):
        from_stan(fit, StanModel())
    with pytest.raises(InputError, match="model: expected a bridgestan.StanModel, got str"):
        from_stan(fit, "eight_schools.stan")
    fit = CmdStanMCMC(*parts())
    fit.column_names = tuple(name.replace("theta", "eta") for name in fit.column_names)
    with pytest.raises(InputError, match=r"fit: the model has theta\[1,1\], of which there are no draws"):
        from_stan(fit, StanModel())
