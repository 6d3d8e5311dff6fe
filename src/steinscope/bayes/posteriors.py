"""Draws in a file or container, and a model of whichever library."""

from __future__ import annotations

from typing import Any

import numpy as np

from steinscope.bayes.arrays import from_arrays
from steinscope.bayes.checks import scores_of
from steinscope.bayes.containers import read_container
from steinscope.bayes.numpyro import from_numpyro
from steinscope.bayes.pymc import from_pymc
from steinscope.bayes.stan import from_stan
from steinscope.densities import model_of
from steinscope.draws import Draws
from steinscope.errors import InputError

__all__ = ["from_posterior"]


def from_posterior(data: Any, model: Any) -> Draws:
    """Draws in a container or netCDF file, with scores of a model that is known by its type.

    Arguments:
        data: A container of ArviZ, an xarray data set, or a netCDF file.
        model: A PyMC model, a `bridgestan.StanModel`, a NumPyro model without arguments (`functools.partial` gives them
            to one that has some), or a density as in `gof_test`, such as an object with `score(x)` or `log_prob(x)`, on
            all variables, flattened in their order, which then must be unconstrained.
    """
    library = type(model).__module__.partition(".")[0]
    if library == "pymc":
        return from_pymc(data, model)
    if callable(getattr(model, "log_density_gradient", None)):
        return from_stan(data, model)
    model = model_of(None, model)
    if callable(getattr(model, "score", None)) or callable(getattr(model, "log_prob", None)):
        return _of_density(data, model)
    if callable(model):
        return from_numpyro(data, model)
    raise InputError(
        "model",
        "expected a PyMC model, a bridgestan.StanModel, a NumPyro model or an object with score(x) or log_prob(x), "
        f"got {type(model).__name__}",
    )


def _of_density(data: Any, model: Any) -> Draws:
    container = read_container(data)
    parts = [variable.values.reshape(*variable.values.shape[:2], -1) for variable in container.variables.values()]
    x = np.concatenate(parts, axis=2)
    names = [label for variable in container.variables.values() for label in variable.labels]
    x = x if x.dtype == np.float32 else x.astype(np.float64)
    scores = scores_of(model, x.reshape(-1, x.shape[2])).reshape(x.shape)
    known = {"log_prob": container.log_prob, "diverging": container.diverging}
    return from_arrays(x, scores, dims=("chain", "draw"), names=names, density=model, **known)
