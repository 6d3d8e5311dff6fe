"""Data frames: their numbers, and the names of their columns.

Anything with `columns` and `to_numpy()` counts as one, so that frames of pandas and Polars are taken and neither is
needed. Arrays of xarray have names for their columns, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from steinscope.errors import InputError

__all__ = [
    "Names",
    "check_names",
    "check_score_columns",
    "coordinate_label",
    "coordinate_names",
    "frame_numbers",
    "is_frame",
    "repeated",
]

Names = tuple[str, ...] | None
"""What the coordinates of points are called; None where nobody has named them."""


def is_frame(value: Any) -> bool:
    """Whether a value is a data frame."""
    return hasattr(value, "columns") and callable(getattr(value, "to_numpy", None))


def check_score_columns(x: Any, scores: Any, name: str = "model") -> None:
    """Refuse scores whose columns are those of the points in another order. They may have names of their own.

    Arguments:
        x: The points as the user holds them.
        scores: Their scores, or a model of any kind.
        name: What the user calls them.
    """
    if not (is_frame(x) and is_frame(scores)):
        return
    labels, columns = [str(label) for label in x.columns], [str(label) for label in scores.columns]
    if not set(labels) & set(columns):
        return
    for place, (came, wanted) in enumerate(zip(columns, labels, strict=False)):
        if came != wanted:
            problem = f"column {place} of the scores is {came!r}, and {wanted!r} in x; give both in the same order"
            raise InputError(name, problem)


def frame_numbers(frame: Any, name: str) -> np.ndarray:
    """The numbers of a data frame, or an `InputError` that names the first column that has something else."""
    array = np.asarray(frame.to_numpy())
    if array.dtype.kind in "fiub":
        return array
    columns = []
    for label, column in zip(frame.columns, array.T, strict=True):
        try:
            columns.append(column.astype(np.float64))
        except (TypeError, ValueError):
            raise InputError(
                name, f"column {str(label)!r} holds {str(_first_other(column))!r}, expected numbers"
            ) from None
    return np.stack(columns, 1)


def _first_other(column: np.ndarray) -> Any:
    """The first entry that is no number."""
    for value in column:
        try:
            float(value)
        except (TypeError, ValueError):
            return value
    return column[0]


def coordinate_names(x: Any, names: Any, dim: int) -> Names:
    """The names that were given, or those that x has: the columns of a data frame, the coordinates of an xarray.

    Arguments:
        x: The points as the user holds them.
        names: What the user calls the coordinates, if anything.
        dim: How many coordinates a point has.
    """
    if names is not None:
        return check_names(names, dim)
    is_lazy = hasattr(type(x), "__dask_graph__") and hasattr(x, "columns")
    labels = tuple(map(str, x.columns)) if is_frame(x) or is_lazy else _axis_labels(x)
    if labels is not None and (twice := repeated(labels)) is not None:
        raise InputError("x", f"two columns are called {twice!r}; rename one, or name the coordinates by names=")
    return labels


def check_names(names: Any, dim: int) -> tuple[str, ...]:
    """What the user calls the coordinates: one string for each, and no two of them alike."""
    # A string is no list of names, and an array without axes cannot be gone through.
    is_list = isinstance(names, Iterable) and not isinstance(names, str) and getattr(names, "ndim", 1) == 1
    labels = tuple(names) if is_list else ()
    if not is_list or not all(isinstance(label, str) for label in labels):
        raise InputError("names", f"expected one string for each coordinate, got {names!r}")
    if len(labels) != dim:
        raise InputError("names", f"expected one for each of {dim} coordinates, got {len(labels)}")
    if (twice := repeated(labels)) is not None:
        raise InputError("names", f"two coordinates are called {twice!r}")
    return labels


def repeated(labels: Sequence[str]) -> str | None:
    """The first label that comes twice, if one does.

    Example:
        >>> repeated(["a", "b", "a"]), repeated(["a", "b"])
        ('a', None)
    """
    seen: set[str] = set()
    for label in labels:
        if label in seen:
            return label
        seen.add(label)
    return None


def _axis_labels(x: Any) -> Names:
    """What an array of xarray calls its columns, if anything."""
    dims, coords = getattr(x, "dims", ()), getattr(x, "coords", ())
    if not isinstance(dims, tuple) or len(dims) != 2 or dims[1] not in coords:
        return None
    return tuple(str(label) for label in np.asarray(coords[dims[1]]))


def coordinate_label(names: Names, coordinate: int) -> str:
    """What a coordinate is called: by its name, otherwise `x[3]`.

    Example:
        >>> coordinate_label(("age", "income"), 1), coordinate_label(None, 1)
        ('income', 'x[1]')
    """
    return f"x[{coordinate}]" if names is None else names[coordinate]
