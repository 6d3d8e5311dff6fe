"""What posteriors are kept in: InferenceData and DataTree of ArviZ, data sets of xarray, netCDF files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from steinscope.bayes.labels import entry_labels
from steinscope.bayes.libraries import load_library
from steinscope.errors import InputError, first_line

__all__ = ["Container", "Variable", "read_container"]


@dataclass(frozen=True)
class Variable:
    """Draws of one variable.

    Arguments:
        values: The draws, of shape (chains, draws, ...).
        labels: What the entries of one draw are called, in the order of its flattened values.
    """

    values: np.ndarray
    labels: list[str]


@dataclass(frozen=True)
class Container:
    """What a container holds of a posterior.

    Arguments:
        variables: The draws by the name of the variable.
        stats: What the sampler says about each draw, of shape (chains, draws, ...).
    """

    variables: dict[str, Variable]
    stats: dict[str, np.ndarray] = field(default_factory=dict)

    def draws_of(self, names: list[str]) -> dict[str, np.ndarray]:
        """The draws of these variables, or an `InputError` that names the first that is missing."""
        for name in names:
            if name not in self.variables:
                held = ", ".join(self.variables) or "nothing"
                raise InputError("data", f"the model has {name!r}, of which there are no draws; there are {held}")
        return {name: self.variables[name].values for name in names}

    @property
    def log_prob(self) -> np.ndarray | None:
        """The log-density at each draw as the sampler gives it, up to a constant."""
        return self.stats.get("lp")

    @property
    def diverging(self) -> np.ndarray | None:
        """Which draws end a divergent trajectory."""
        return self.stats.get("diverging")


def read_container(data: Any) -> Container:
    """The posterior in a container.

    Arguments:
        data: An InferenceData or DataTree with the group `posterior`, an xarray data set of draws, a netCDF file, or a
            dictionary of arrays of shape (chains, draws, ...).
    """
    if isinstance(data, str | PathLike):
        return _read_file(Path(data))
    if _is_dataset(data):
        return Container(_variables(data))
    if isinstance(data, Mapping) and "posterior" not in data:
        if not data:
            raise InputError("data", "the posterior holds no variables")
        arrays = {str(name): _array(values, str(name)) for name, values in data.items()}
        for name, values in arrays.items():
            if values.ndim < 2:
                raise InputError("data", f"{name!r} has shape {values.shape}, expected (chains, draws, ...)")
        return Container({name: Variable(v, entry_labels(name, v.shape[2:])) for name, v in arrays.items()})
    posterior = _group(data, "posterior")
    if posterior is None:
        raise InputError(
            "data",
            "expected an InferenceData or DataTree with the group posterior, an xarray data set, a netCDF file or a "
            f"dictionary of arrays, got {type(data).__name__}",
        )
    return Container(_variables(posterior), _stats(_group(data, "sample_stats")))


def _array(values: Any, name: str) -> np.ndarray:
    try:
        return np.asarray(values)
    except (TypeError, ValueError, RuntimeError) as error:
        raise InputError("data", f"{name!r} is not an array: {first_line(error)}") from error


def _read_file(path: Path) -> Container:
    xarray = load_library("xarray", "arviz")
    if not path.is_file():
        raise InputError("data", f"there is no file {path}")
    try:
        with xarray.open_dataset(path, group="posterior") as posterior:
            variables = _variables(posterior.load())
    except InputError:
        raise
    except Exception as error:
        # The readers of netCDF files raise nearly anything where the bytes are not what they expect.
        problem = f"{path} cannot be read as a netCDF file with the group posterior ({first_line(error)})"
        raise InputError("data", problem) from None
    try:
        with xarray.open_dataset(path, group="sample_stats") as stats:
            return Container(variables, _stats(stats.load()))
    except (OSError, KeyError):
        return Container(variables)


def _is_dataset(data: Any) -> bool:
    """Whether this is a data set of xarray, which has variables with dimensions, and not a tree of them."""
    return hasattr(data, "data_vars") and not hasattr(data, "children")


def _group(data: Any, name: str) -> Any:
    try:
        group = data[name]
    except (KeyError, TypeError, AttributeError, IndexError):
        return None
    if hasattr(group, "children") and hasattr(group, "to_dataset"):
        group = group.to_dataset()
    return group if _is_dataset(group) else None


def _variables(dataset: Any) -> dict[str, Variable]:
    found = {}
    for name, array in dataset.data_vars.items():
        if not {"chain", "draw"} <= set(array.dims):
            raise InputError("data", f"{name!r} has the dimensions {array.dims}, expected chain and draw among them")
        array = array.transpose("chain", "draw", ...)
        coords = [list(array.coords[dim].to_numpy()) if dim in array.coords else None for dim in array.dims[2:]]
        found[str(name)] = Variable(array.to_numpy(), entry_labels(str(name), array.shape[2:], coords))
    if not found:
        raise InputError("data", "the posterior holds no variables")
    return found


def _stats(dataset: Any) -> dict[str, np.ndarray]:
    """Arrays of numbers for each draw. Others, such as warnings of the sampler, are left out."""
    if dataset is None:
        return {}
    return {
        str(name): array.transpose("chain", "draw", ...).to_numpy()
        for name, array in dataset.data_vars.items()
        if {"chain", "draw"} <= set(array.dims) and array.dtype.kind in "fiub"
    }
