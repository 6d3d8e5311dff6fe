"""Names for the shapes of arrays that go through the library."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor

__all__ = ["FlatPoints", "OtherPoints", "PerPoint", "Points", "Scalar", "flattened"]

Points = Float[Tensor, "n *shape"]
"""Points as users hold them: the first axis is the sample, all others belong to a point."""

OtherPoints = Float[Tensor, "m *shape"]
"""Other points of the same shape, of which there may be another number."""

FlatPoints = Float[Tensor, "n d"]
"""Points as vectors."""

PerPoint = Float[Tensor, " n"]
"""One number for each point."""

Scalar = Float[Tensor, ""]
"""One number."""


def flattened(x: Tensor) -> Tensor:
    """Points as vectors; single numbers are vectors of one coordinate."""
    return x.reshape(len(x), -1)
