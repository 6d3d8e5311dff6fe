"""Containers, by small stand-ins for those of xarray. The real ones are in tests_bayes."""

import numpy as np
import pytest
import torch

from steinscope import InputError, gof_test
from steinscope.bayes import from_numpyro, from_posterior, from_pymc
from steinscope.bayes.containers import read_container
from steinscope.bayes.labels import entry_labels, transformed_labels
from steinscope.models import Gaussian

from containers import Array, Dataset, Tree

SCHOOLS = ["Choate", "Deerfield"]
RNG = np.random.default_rng(0)
THETA, MU = RNG.normal(size=(4, 100, 2)), RNG.normal(size=(4, 100))


def posterior(**more):
    schools = Array(np.array(SCHOOLS), ["school"])
    # The axes of theta are not in the usual order.
    theta = Array(THETA.transpose(2, 1, 0), ["school", "draw", "chain"], {"school": schools})
    return Dataset(mu=Array(MU, ["chain", "draw"]), theta=theta, **more)


def stats():
    lp = -0.5 * (THETA**2).sum(2) - 0.5 * MU**2 + 3
    return Dataset(
        lp=Array(lp, ["chain", "draw"]),
        diverging=Array(lp < -5, ["chain", "draw"]),
        warning=Array(np.full((4, 100), None), ["chain", "draw"]),
        step_size=Array(np.ones(4), ["chain"]),
    )


CONTAINERS = {
    "InferenceData": lambda: {"posterior": posterior(), "sample_stats": stats()},
    "DataTree": lambda: Tree({"posterior": Tree({}, posterior()), "sample_stats": Tree({}, stats())}),
    "Dataset": lambda: posterior(),
}


@pytest.mark.parametrize("kind", CONTAINERS)
def test_variables_statistics_and_labels_are_read(kind):
    container = read_container(CONTAINERS[kind]())
    assert list(container.variables) == ["mu", "theta"]
    assert np.array_equal(container.variables["theta"].values, THETA)
    assert container.variables["theta"].labels == ["theta[Choate]", "theta[Deerfield]"]
    assert (container.log_prob is None) == (kind == "Dataset")
    if kind != "Dataset":
        assert sorted(container.stats) == ["diverging", "lp"] and container.diverging.dtype == bool


def test_dictionaries_are_containers():
    container = read_container({"mu": MU, "theta": THETA})
    assert container.variables["theta"].labels == ["theta[0]", "theta[1]"]


class Normal:
    def log_prob(self, x):
        return -0.5 * (x**2).sum(1)


@pytest.mark.parametrize("kind", CONTAINERS)
def test_a_density_of_ones_own_is_scored_at_the_draws(kind):
    draws = from_posterior(CONTAINERS[kind](), Normal())
    assert draws.names == ("mu", "theta[Choate]", "theta[Deerfield]") and draws.chains == 4
    assert np.allclose(draws.scores, -np.concatenate([MU[..., None], THETA], 2))
    assert not gof_test(draws, critics="closed form").rejected


def test_a_module_of_torch_is_scored_at_the_draws():
    draws = from_posterior(CONTAINERS["DataTree"](), Gaussian(torch.zeros(3)))
    assert draws.x.dtype == draws.scores.dtype == np.float64
    assert np.allclose(draws.scores, -draws.x, atol=1e-6)


class Narrow:
    def log_prob(self, x):
        return -(x**2).sum(1)


BAD = {
    "data: expected an InferenceData or DataTree with the group posterior.*got int": lambda: read_container(3),
    "data: expected an InferenceData or DataTree .*got list": lambda: read_container([1, 2]),
    "data: 'tau' has the dimensions .'draw',.": lambda: read_container(posterior(tau=Array(np.ones(3), ["draw"]))),
    "data: 'mu' has shape .100,., expected .chains, draws": lambda: read_container({"mu": MU[0]}),
    "data: the posterior holds no variables": lambda: read_container(Dataset()),
    "data: 'a' is not an array: setting an array element": lambda: read_container({"a": [[1.0, 2.0], [3.0]]}),
    "data: the posterior holds no variables$": lambda: from_posterior({}, Narrow()),
    "the model has 'tau', of which there are no draws; there are mu, theta": lambda: read_container(
        posterior()
    ).draws_of(["mu", "tau"]),
    "log_prob: its log-density differs from the sampler's by": lambda: from_posterior(
        CONTAINERS["DataTree"](), Narrow()
    ),
    "model: expected a PyMC model, a bridgestan.StanModel, .*got int": lambda: from_posterior(posterior(), 3),
}


@pytest.mark.parametrize("message", BAD)
def test_bad_containers(message):
    with pytest.raises(InputError, match=message):
        BAD[message]()


@pytest.mark.parametrize(
    "call, library, extra",
    [
        (lambda: from_pymc(posterior(), None), "pymc", "pymc"),
        (lambda: from_numpyro(posterior(), None), "numpyro", "numpyro"),
        (lambda: read_container("posterior.nc"), "xarray", "arviz"),
    ],
)
def test_a_library_that_is_missing_is_one_line_that_says_how_to_install_it(call, library, extra, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, library, None)
    with pytest.raises(InputError) as caught:
        call()
    assert f"this needs {library}" in str(caught.value) and f"steinscope[{extra}]" in str(caught.value)


def test_labels():
    assert entry_labels("beta", (2, 1), [None, ["b"]]) == ["beta[0, b]", "beta[1, b]"]
    assert transformed_labels("log", "s", ["s[a]", "s[b]"], (2,)) == ["log(s[a])", "log(s[b])"]
    assert transformed_labels(None, "s", ["s[a]", "s[b]"], (2,)) == ["s[a]", "s[b]"]
    assert transformed_labels("simplex", "w", ["w[0]", "w[1]"], (1,)) == ["simplex(w)[0]"]
