"""Names for the shapes of arrays that go through the library."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor

__all__ = ["FlatPoints", "PerPoint", "Points", "Scalar", "flattened"]

Points = Float[Tensor, "n *shape"]
"""Points as users hold them: the first axis is the sample, all others belong to a point."""

FlatPoints = Float[Tensor, "n d"]
"""Points as vectors."""

PerPoint = Float[Tensor, " n"]
"""One number for each point."""

Scalar = Float[Tensor, ""]
"""One number."""


def flattened(x: Tensor) -> Tensor:
    """Points as vectors; single numbers are vectors of one coordinate."""
    return x.reshape(len(x), -1)
