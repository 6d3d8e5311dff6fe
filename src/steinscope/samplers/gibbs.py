"""Block Gibbs for RBMs."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from steinscope.models.rbm import RBM
from steinscope.samplers.chains import Info, State
from steinscope.shapes import Points

__all__ = ["Gibbs"]


@dataclass(frozen=True)
class Gibbs:
    """Block Gibbs for an RBM: all hidden units given x, then x given them.

    Arguments:
        model: The RBM.
    """

    model: RBM

    def begin(self, x: Points) -> State:
        """The state of chains at x."""
        return State(x)

    def __call__(self, state: State, generator: torch.Generator) -> tuple[State, Info]:
        """The next state."""
        return State(self.model.gibbs_step(state.x, generator)), Info()
