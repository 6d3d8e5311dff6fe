"""What every way of training a model has in common."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor, nn

__all__ = ["Points", "Scalar", "TrainingObjective", "WithoutAuxiliaryLoss"]

Points = Float[Tensor, "n *shape"]
Scalar = Float[Tensor, ""]


@runtime_checkable
class TrainingObjective(Protocol):
    """A loss for the model, and maybe an auxiliary loss with parameters of its own.

    Arguments:
        auxiliary: What the objective trains or keeps beside the model: a critic, a log-normaliser, chains. None where
            there is nothing. It is made by `begin`, and is part of every checkpoint.
        auxiliary_steps: How many steps on the auxiliary loss come before each step of the model, each on its own batch.
            With 0 the auxiliary parameters are trained on the model's loss, together with the model.
    """

    auxiliary: nn.Module | None
    auxiliary_steps: int

    def begin(self, model: Any, x: Points, generator: torch.Generator) -> None:
        """Look at some points once before training, and make `auxiliary`."""
        ...

    def auxiliary_loss(self, model: Any, x: Points, generator: torch.Generator) -> Scalar:
        """The loss of the auxiliary parameters, the model held fixed."""
        ...

    def model_loss(self, model: Any, x: Points, generator: torch.Generator) -> Scalar:
        """The loss of the model's parameters, the auxiliary ones held fixed."""
        ...


class WithoutAuxiliaryLoss:
    """The part of an objective that has only a loss for the model, on which its auxiliary part is trained, too."""

    auxiliary: nn.Module | None = None
    auxiliary_steps = 0

    def begin(self, model: Any, x: Points, generator: torch.Generator) -> None:
        """Nothing is made."""

    def auxiliary_loss(self, model: Any, x: Points, generator: torch.Generator) -> Scalar:
        """Never called: there are no auxiliary steps."""
        raise NotImplementedError(f"{type(self).__name__} has no auxiliary loss")
