"""What coordinates are called: as ArviZ does, and with the transformation that leads to unconstrained coordinates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

__all__ = ["entry_labels", "transformed_labels"]


def entry_labels(name: str, shape: Sequence[int], coords: Sequence[Sequence[Any] | None] | None = None) -> list[str]:
    """A label for each entry of a variable, in the order of its flattened values.

    Arguments:
        name: The variable.
        shape: The shape of one draw of it.
        coords: What the entries along each axis are called; by default, and where it is None, their numbers.

    Example:
        >>> entry_labels("mu", ()), entry_labels("theta", (2,), [["Choate", "Deerfield"]])
        (['mu'], ['theta[Choate]', 'theta[Deerfield]'])
        >>> entry_labels("beta", (1, 2), [["age"], None])
        ['beta[age, 0]', 'beta[age, 1]']
    """
    if not shape:
        return [name]
    given = coords or [None] * len(shape)
    marks = [range(size) if labels is None else labels for size, labels in zip(shape, given, strict=True)]
    return [
        f"{name}[{', '.join(str(labels[place]) for labels, place in zip(marks, index, strict=True))}]"
        for index in np.ndindex(*shape)
    ]


def transformed_labels(transform: str | None, name: str, labels: Sequence[str], shape: Sequence[int]) -> list[str]:
    """Labels of the unconstrained coordinates of a variable.

    Arguments:
        transform: What leads to them, such as `log`; None where they are the variable itself.
        name: The variable.
        labels: Labels of the entries of the variable.
        shape: The shape of the unconstrained coordinates. Where there are as many as entries, they are called after
            them: `log(tau[a])`.

    Example:
        >>> transformed_labels("log", "tau", ["tau"], ())
        ['log(tau)']
        >>> transformed_labels("simplex", "w", ["w[0]", "w[1]", "w[2]"], (2,))
        ['simplex(w)[0]', 'simplex(w)[1]']
    """
    if transform is None:
        return list(labels)
    if int(np.prod(shape)) == len(labels):
        return [f"{transform}({label})" for label in labels]
    return entry_labels(f"{transform}({name})", shape)
