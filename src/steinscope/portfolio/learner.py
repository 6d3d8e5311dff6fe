"""What a critic of the portfolio is: one that learns from block to block.

A learner is shown the points block by block. Before it takes in a block it gives the Stein values of that block's
points under the critic that it made from the blocks before. Most learners make their critic in closed form from sums
over the points, so that a whole test costs a few passes of matrix products.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import torch

from steinscope.results import Finding
from steinscope.shapes import FlatPoints, PerPoint

__all__ = ["Learner"]


class Learner(ABC):
    """A critic that learns from block to block.

    A new one needs `begin`, `observe`, `refit` and `field`, and a line in `steinscope.registries.CRITICS`.
    """

    name: str

    @classmethod
    def for_model(cls, model: Any, seed: int) -> Learner:
        """A fresh learner for a test of this model.

        Arguments:
            model: The model as the user gave it; many learners need nothing of it.
            seed: The source of all that is random in the learner.
        """
        return cls()

    @abstractmethod
    def begin(self, x: FlatPoints, score: FlatPoints) -> None:
        """Look at the first batch of the first block: scales and sizes are taken from it, and stay fixed."""

    @abstractmethod
    def observe(self, x: FlatPoints, score: FlatPoints) -> None:
        """Take in points of the present block. The critic does not change yet."""

    @abstractmethod
    def refit(self) -> None:
        """The block is over: make the critic from all points seen so far."""

    @abstractmethod
    def field(self, x: FlatPoints) -> tuple[FlatPoints, FlatPoints]:
        """The critic of the blocks before at points, and the diagonal of its Jacobian."""

    def values(self, x: FlatPoints, score: FlatPoints) -> PerPoint:
        """The Stein values of points under that critic."""
        f, diagonal = self.field(x)
        return torch.linalg.vecdot(score, f) + diagonal.sum(1)

    def findings(self) -> tuple[Finding, ...]:
        """What the critic found in all points seen, in words, strongest first; most critics have none."""
        return ()
