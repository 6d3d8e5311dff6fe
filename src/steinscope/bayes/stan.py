"""Draws of Stan, with scores by BridgeStan."""

from __future__ import annotations

from typing import Any

import numpy as np

from steinscope.bayes.checks import check_log_prob, some_rows
from steinscope.bayes.containers import Container, read_container
from steinscope.bayes.density import Posterior, row_by_row
from steinscope.draws import Draws
from steinscope.errors import InputError

__all__ = ["from_stan"]


def from_stan(fit: Any, model: Any) -> Draws:
    """Draws of a Stan program, with scores by BridgeStan.

    Arguments:
        fit: What `CmdStanModel.sample` of CmdStanPy returns, or its draws in a container of ArviZ.
        model: The `bridgestan.StanModel` of the same program and the same data.
    """
    needed = ("param_names", "param_unc_names", "param_unconstrain", "log_density_gradient")
    if not all(callable(getattr(model, name, None)) for name in needed):
        raise InputError("model", f"expected a bridgestan.StanModel, got {type(model).__name__}")
    parameters = list(model.param_names())
    is_cmdstan = hasattr(fit, "column_names") and callable(getattr(fit, "draws", None))
    read = _from_cmdstan if is_cmdstan else _from_container
    theta, labels, log_prob, diverging = read(fit, parameters)
    chains, count, _ = theta.shape
    flat = [model.param_unconstrain(np.ascontiguousarray(row)) for row in theta.reshape(chains * count, -1)]
    x = np.array(flat).reshape(chains, count, -1)
    density = Posterior(row_by_row(lambda point: model.log_density_gradient(point, propto=True, jacobian=True)))
    values, scores = density.at(x)
    if log_prob is not None:
        rows = some_rows(x)
        check_log_prob(values.reshape(-1)[rows], log_prob.reshape(-1)[rows])
    names = _unconstrained_names(theta, x, labels, list(model.param_unc_names()))
    return Draws(x, scores, tuple(names), values, density, diverging)


Read = tuple[np.ndarray, list[str], np.ndarray | None, np.ndarray | None]


def _from_cmdstan(fit: Any, parameters: list[str]) -> Read:
    """Draws (chains, draws, parameters) in the order of the parameters, with labels, lp__ and divergences."""
    columns = {_label(column): place for place, column in enumerate(fit.column_names)}
    labels = [_label(parameter) for parameter in parameters]
    for label in labels:
        if label not in columns:
            raise InputError("fit", f"the model has {label}, of which there are no draws")
    values = np.swapaxes(np.asarray(fit.draws(concat_chains=False)), 0, 1)
    theta = values[:, :, [columns[label] for label in labels]]
    log_prob = values[:, :, columns["lp__"]] if "lp__" in columns else None
    diverging = values[:, :, columns["divergent__"]].astype(bool) if "divergent__" in columns else None
    return theta, labels, log_prob, diverging


def _from_container(data: Any, parameters: list[str]) -> Read:
    container: Container = read_container(data)
    columns, labels = [], []
    for parameter in parameters:
        name, *indices = parameter.split(".")
        values = container.draws_of([name])[name]
        place = tuple(int(index) - 1 for index in indices)
        if len(place) != values.ndim - 2 or any(i >= size for i, size in zip(place, values.shape[2:], strict=True)):
            raise InputError("fit", f"the model has {_label(parameter)}, and draws of {name} have {values.shape}")
        columns.append(values[(..., *place)])
        labels.append(
            container.variables[name].labels[int(np.ravel_multi_index(place, values.shape[2:]) if place else 0)]
        )
    return np.stack(columns, axis=2), labels, container.log_prob, container.diverging


def _label(parameter: str) -> str:
    """Stan's `theta.1.2` and CmdStanPy's `theta[1,2]` as one."""
    if "[" in parameter:
        return parameter.replace(" ", "")
    name, *indices = parameter.split(".")
    return f"{name}[{','.join(indices)}]" if indices else name


def _unconstrained_names(theta: np.ndarray, x: np.ndarray, labels: list[str], unconstrained: list[str]) -> list[str]:
    """Names of coordinates, after the parameters where there are as many of both.

    BridgeStan does not say which transformation a parameter has, but the draws do.
    """
    if theta.shape != x.shape:
        return [f"unconstrained({_label(name)})" for name in unconstrained]
    names = []
    for place, label in enumerate(labels):
        value, free = theta[:, :, place], x[:, :, place]
        if np.allclose(value, free, rtol=1e-6):
            names.append(label)
        elif (value > 0).all() and np.allclose(np.log(value), free, rtol=1e-4, atol=1e-4):
            names.append(f"log({label})")
        else:
            names.append(f"unconstrained({label})")
    return names
