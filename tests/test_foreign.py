"""Densities of scipy.stats and stand-ins for estimators; `tests_bayes/test_blackjax.py` has real estimators."""

import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from scipy import stats

from steinscope import InputError, from_energy, from_log_prob, gof_test
from steinscope.densities import as_density
from steinscope.foreign import check_fitted_columns, foreign_density

from helpers import generator


class Frame:
    """What pandas and Polars share."""

    def __init__(self, data, columns=None, schema=None):
        self.data, self.columns = np.asarray(data), columns or schema

    def to_numpy(self):
        return self.data


class Fitted:
    """An estimator that was fitted to a data frame: scikit-learn warns where such a one sees an array."""

    feature_names_in_ = np.array(["age", "income"], dtype=object)

    def fit(self, x):
        return self

    def get_params(self):
        return {}

    def score_samples(self, x):
        assert list(x.columns) == ["age", "income"]
        return -0.5 * (x.to_numpy() ** 2).sum(1)


def points(n=300, d=2):
    return np.random.default_rng(0).normal(size=(n, d))


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_an_estimator_sees_the_columns_that_it_was_fitted_to(monkeypatch, library):
    other = {"pandas": "polars", "polars": "pandas"}[library]
    monkeypatch.setitem(sys.modules, library, SimpleNamespace(DataFrame=Frame))
    # None stands for a library that is not installed.
    monkeypatch.setitem(sys.modules, other, None)
    x = torch.from_numpy(points())
    torch.testing.assert_close(as_density(Fitted()).score(x), -x, rtol=0, atol=1e-7)


def test_columns_in_another_order_than_those_of_the_fit_are_refused():
    frame = Frame(points(), ["income", "age"])
    with pytest.raises(InputError, match="x: column 0 is 'income', and Fitted was fitted with 'age' there"):
        gof_test(frame, Fitted())
    for labels in (["age", "income"], ["a", "b"], ["income", "age", "height"], None):
        check_fitted_columns(Fitted(), labels)
    check_fitted_columns(stats.norm(), ["income", "age"])


@pytest.mark.parametrize("dim", [1, 2])
def test_a_kernel_density_of_scipy_takes_one_point_in_each_row(dim):
    data, x = points(50, dim), torch.from_numpy(points(7, dim))
    kde = stats.gaussian_kde(data.T)
    inverse = torch.from_numpy(np.linalg.inv(np.atleast_2d(kde.covariance)))
    apart = x[:, None] - torch.from_numpy(data)
    weights = torch.softmax(-0.5 * torch.einsum("nki,ij,nkj->nk", apart, inverse, apart), 1)
    expected = -torch.einsum("nk,nki,ij->nj", weights, apart, inverse)
    torch.testing.assert_close(as_density(kde).score(x), expected, rtol=0, atol=1e-6)


def test_a_dirichlet_of_scipy_is_that_of_torch():
    concentration = [2.0, 3.0, 4.0]
    x = np.random.default_rng(0).dirichlet(concentration, size=300)
    found, same = (
        gof_test(x, model, critics="closed form")
        for model in (stats.dirichlet(concentration), torch.distributions.Dirichlet(torch.tensor(concentration)))
    )
    assert found.pvalue == pytest.approx(same.pvalue, rel=1e-3)
    assert gof_test(x, stats.dirichlet([1.0, 1.0, 1.0]), critics="closed form").rejected


def test_what_has_no_density_of_points_is_refused_in_one_line():
    with pytest.raises(InputError, match="model: rv_discrete_frozen is discrete"):
        gof_test(np.arange(50.0), stats.poisson(3.0))
    for many in (stats.norm([0.0, 1.0]), stats.uniform([0.0, 1.0])):
        with pytest.raises(InputError, match="model: logpdf must return one number for each of the 300 points, got"):
            gof_test(points() ** 2, many)
    assert foreign_density(stats.norm) is not None and foreign_density(object()) is None


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: np.sum(-(x**2), 1),
        lambda x: stats.norm.logpdf(x).sum(1),
        lambda x: -(np.asarray(x) ** 2).sum(1),
        lambda x: stats.multivariate_normal.logpdf(x, np.zeros(2)),
    ],
    ids=["np.sum", "scipy", "asarray", "multivariate"],
)
def test_a_function_of_numpy_or_scipy_is_told_what_it_needs(fn):
    x = torch.randn(200, 2, generator=generator())
    with pytest.raises(InputError, match=r"model: energy .*becomes a model by from_energy\(fn, numpy=True\)"):
        from_energy(fn).score(x)
    assert from_energy(fn, numpy=True).score(x).isfinite().all()


def test_a_function_of_tensors_is_told_that_it_gets_arrays():
    model = from_log_prob(lambda x: -x.square().sum(1), numpy=True)
    with pytest.raises(InputError, match="has no attribute 'square'; .*: leave out numpy=True if it works on tensors"):
        model.score(torch.zeros(5, 2))


def test_a_sum_over_all_points_is_told_from_one_for_each():
    with pytest.raises(InputError, match=r"for each of the 5 points, got \(\), one number for all: sum over the coord"):
        from_log_prob(lambda x: -(x**2).sum()).score(torch.zeros(5, 2))
