"""A critic of x, seen in other coordinates."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch

from steinscope.critics.base import Batches, Critic
from steinscope.metric import Metric
from steinscope.shapes import FlatPoints, PerPoint, flattened

__all__ = ["Rescaled"]


class Rescaled(Critic):
    """A critic of x as a critic of the coordinates z of a metric: g(z) = L f(x). Its divergence is the same number.

    Arguments:
        critic: The critic f.
        metric: The coordinates.
        shape: The shape of a point x.
    """

    def __init__(self, critic: Critic, metric: Metric, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.critic, self.metric, self.shape = critic, metric, shape

    @property
    def is_solvable(self) -> bool:
        """Whether f is solved in closed form."""
        return self.critic.is_solvable

    def solve_path(self, batches: Batches, l2: float, ridges: Sequence[float]) -> Iterator[float]:
        """Solve f in the coordinates of x."""
        moved = ((self._original(z), self.metric.field_in_z(score).view(len(z), *self.shape)) for z, score in batches)
        return self.critic.solve_path(moved, l2, ridges)

    def forward(self, x: FlatPoints) -> FlatPoints:
        """The value g(z) at each point."""
        return self.metric.field_in_z(flattened(self.critic(self._original(x))))

    def value_and_divergence(
        self, x: FlatPoints, generator: torch.Generator | None = None
    ) -> tuple[FlatPoints, PerPoint]:
        """g(z) and its divergence at each point."""
        f, divergence = self.critic.value_and_divergence(self._original(x), generator)
        return self.metric.field_in_z(flattened(f)), divergence

    def value_and_diagonal(self, x: FlatPoints) -> tuple[FlatPoints, FlatPoints]:
        """g(z) and ∂g_i/∂z_i for each coordinate."""
        if self.metric.root is not None:
            return super().value_and_diagonal(x)
        f, diagonal = self.critic.value_and_diagonal(self._original(x))
        return self.metric.field_in_z(flattened(f)), flattened(diagonal)

    def _original(self, z: FlatPoints) -> torch.Tensor:
        return self.metric.original(z).view(len(z), *self.shape)
