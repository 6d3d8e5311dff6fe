"""Densities of scipy.stats and scikit-learn: what computes their logarithm on arrays, and where they live.

They are recognised by their methods, so that neither library is imported.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np

from steinscope.errors import InputError
from steinscope.flows import is_of

__all__ = ["ForeignDensity", "check_fitted_columns", "foreign_density"]

ForeignDensity = tuple[Callable[[np.ndarray], np.ndarray], str, Any]
"""What takes points to log-densities, how it is called in messages, and its support."""


def foreign_density(model: Any) -> ForeignDensity | None:
    """The log-density of a distribution of scipy.stats or of an estimator of scikit-learn; None for all else."""
    if _is_estimator(model):
        # Detectors of outliers have `score_samples`, too, which are no log-densities. The `score` of an estimator is a
        # mean over the points, and no gradient.
        if not callable(getattr(model, "score_samples", None)) or hasattr(model, "decision_function"):
            raise InputError(
                "model", f"{type(model).__name__} of scikit-learn has no log-density, expected one that has"
            )
        columns = _fitted_columns(model)
        return lambda x: np.atleast_1d(model.score_samples(_with_columns(x, columns))), "score_samples", None
    if isinstance(model, type):
        return None
    if not callable(getattr(model, "logpdf", None)):
        if callable(getattr(model, "logpmf", None)):
            raise InputError("model", f"{type(model).__name__} is discrete; a score needs a density on real numbers")
        return None
    # These two have one point in each column.
    if is_of(model, "gaussian_kde", "scipy"):
        return lambda x: model.logpdf(x.reshape(len(x), -1).T), "logpdf", None
    if is_of(model, "dirichlet_frozen", "scipy"):
        # It refuses what does not add up to 1, from where differences are taken.
        return lambda x: np.atleast_1d(model.logpdf((x / x.sum(1, keepdims=True)).T)), "logpdf", "simplex"
    # Distributions of one number know where they live, and scipy.stats returns a plain number where there is one point.
    bounds = model.support() if callable(getattr(model, "support", None)) else None
    is_single = bounds is not None and np.ndim(bounds[0]) == np.ndim(bounds[1]) == 0
    where = (float(bounds[0]), float(bounds[1])) if bounds is not None and is_single else None
    return lambda x: np.atleast_1d(model.logpdf(x)), "logpdf", where


def check_fitted_columns(model: Any, labels: Any) -> None:
    """Refuse columns in another order than those that an estimator was fitted to.

    Arguments:
        model: A model of any kind.
        labels: What the columns of the points are called, if anything.
    """
    columns = _fitted_columns(model) if _is_estimator(model) else None
    if columns is None or labels is None or len(columns) != len(labels) or not set(columns) & set(labels):
        return
    for place, (came, wanted) in enumerate(zip(labels, columns, strict=True)):
        if came != wanted:
            raise InputError(
                "x",
                f"column {place} is {came!r}, and {type(model).__name__} was fitted with {wanted!r} there; "
                "give the columns in the order of the fit",
            )


def _is_estimator(model: Any) -> bool:
    return callable(getattr(model, "fit", None)) and callable(getattr(model, "get_params", None))


def _fitted_columns(model: Any) -> list[str] | None:
    """The names of the columns that an estimator was fitted to, if they had any."""
    columns = getattr(model, "feature_names_in_", None)
    return None if columns is None else [str(label) for label in columns]


def _with_columns(x: np.ndarray, columns: list[str] | None) -> Any:
    """Points as the estimator has seen them: one that was fitted to a data frame warns about arrays."""
    if columns is None or x.ndim != 2 or x.shape[1] != len(columns):
        return x
    for library, keyword in (("pandas", "columns"), ("polars", "schema")):
        try:
            return import_module(library).DataFrame(x, **{keyword: columns})
        except ImportError:
            continue
    return x
