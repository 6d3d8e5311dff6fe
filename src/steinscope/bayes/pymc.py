"""Draws of PyMC, with scores by the model's own log-density."""

from __future__ import annotations

from typing import Any

import numpy as np

from steinscope.bayes.checks import check_log_prob, some_rows
from steinscope.bayes.containers import read_container
from steinscope.bayes.density import Posterior, row_by_row
from steinscope.bayes.labels import transformed_labels
from steinscope.bayes.libraries import load_library
from steinscope.draws import Draws
from steinscope.errors import InputError

__all__ = ["from_pymc"]


def from_pymc(data: Any, model: Any) -> Draws:
    """Draws of a PyMC model in unconstrained coordinates, with scores.

    Deterministics are left out, and discrete variables are refused. Where the sampler has recorded the log-density
    (`lp`), the model's is compared with it at ten draws.

    Arguments:
        data: What `pm.sample` or `pm.fit(...).sample` return, another container of ArviZ, or a netCDF file.
        model: The model that was sampled.
    """
    load_library("pymc", "pymc", "model")
    if not hasattr(model, "logp_dlogp_function"):
        raise InputError("model", f"expected a pymc.Model, got {type(model).__name__}")
    if model.discrete_value_vars:
        name = model.values_to_rvs[model.discrete_value_vars[0]].name
        raise InputError("model", f"the variable {name!r} is discrete: it has no score, and the test needs one")
    container = read_container(data)
    variables = [model.values_to_rvs[value] for value in model.continuous_value_vars]
    draws = container.draws_of([variable.name for variable in variables])
    parts = _unconstrained(model, variables, draws)
    x = np.concatenate([part.reshape(*part.shape[:2], -1) for part in parts], axis=2)
    density = Posterior(row_by_row(_value_and_gradient(model)))
    values, scores = density.at(x)
    if container.log_prob is not None:
        rows = some_rows(x)
        check_log_prob(values.reshape(-1)[rows], container.log_prob.reshape(-1)[rows])
    names = []
    for variable, part in zip(variables, parts, strict=True):
        transform = model.rvs_to_transforms[variable]
        labels = container.variables[variable.name].labels
        names += transformed_labels(getattr(transform, "name", None), variable.name, labels, part.shape[2:])
    return Draws(x, scores, tuple(names), values, density, container.diverging)


def _value_and_gradient(model: Any) -> Any:
    function = model.logp_dlogp_function(ravel_inputs=True)
    function.set_extra_values({})
    return function


def _unconstrained(model: Any, variables: list[Any], draws: dict[str, np.ndarray]) -> list[np.ndarray]:
    """Unconstrained values (chains, draws, ...) of each variable."""
    pytensor, graph = load_library("pytensor", "pymc", "model"), load_library("pytensor.graph.replace", "pymc", "model")
    inputs = [variable.type() for variable in variables]
    free = []
    for variable, value in zip(variables, inputs, strict=True):
        transform = model.rvs_to_transforms[variable]
        free.append(value if transform is None else transform.forward(value, *variable.owner.inputs))
    # Bounds of a variable can depend on others, which are then taken from the same draw.
    free = graph.graph_replace(free, dict(zip(variables, inputs, strict=True)), strict=False)
    function = pytensor.function(inputs, free, on_unused_input="ignore")
    held = [draws[variable.name] for variable in variables]
    chains, count = held[0].shape[:2]
    for variable, values in zip(variables, held, strict=True):
        if values.ndim - 2 != variable.ndim:
            raise InputError(
                "data", f"{variable.name!r} has shape {values.shape}, expected {variable.ndim} axes a draw"
            )
    rows = [
        function(*(values[chain, draw].astype(value.dtype) for values, value in zip(held, inputs, strict=True)))
        for chain in range(chains)
        for draw in range(count)
    ]
    return [np.array([row[k] for row in rows]).reshape(chains, count, *rows[0][k].shape) for k in range(len(variables))]
