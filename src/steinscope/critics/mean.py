"""The average of several critics."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from steinscope.critics.base import Critic
from steinscope.errors import InputError
from steinscope.shapes import PerPoint, Points

__all__ = ["Mean"]


class Mean(Critic):
    """The average of several critics.

    Arguments:
        critics: The critics; all take points of the same shape.
    """

    def __init__(self, critics: Sequence[Critic]) -> None:
        super().__init__()
        if not isinstance(critics, Sequence) or not critics or not all(isinstance(one, Critic) for one in critics):
            raise InputError(
                "critics", f"expected a list of critics of steinscope.critics, got {type(critics).__name__}"
            )
        self.critics = nn.ModuleList(critics)

    def forward(self, x: Points) -> Points:
        """The mean value at each point."""
        return torch.stack([critic(x) for critic in self.critics]).mean(0)

    def value_and_divergence(self, x: Points, generator: torch.Generator | None = None) -> tuple[Points, PerPoint]:
        """The mean value and the mean divergence at each point."""
        pairs = [critic.value_and_divergence(x, generator) for critic in self.critics]  # pyright: ignore[reportCallIssue]
        return torch.stack([f for f, _ in pairs]).mean(0), torch.stack([div for _, div in pairs]).mean(0)
