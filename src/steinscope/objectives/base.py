"""What every way of training a model has in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

import torch
from torch import nn

from steinscope.shapes import Points, Scalar
from steinscope.support.description import plain_settings

__all__ = ["AuxiliaryObjective", "TrainingObjective"]


class TrainingObjective(ABC):
    """A loss for the model, and maybe parameters beside the model that are trained on the same loss.

    Attributes:
        auxiliary: What the objective trains or keeps beside the model: a critic, a log-normaliser, chains. None where
            there is nothing. It is made by `begin`, and is part of every checkpoint.
        loss_meaning: What the losses of a run mean, for its report.
    """

    auxiliary: nn.Module | None = None
    loss_meaning: ClassVar[str] = ""

    @property
    def unshareable(self) -> str:
        """Why several processes cannot share a run; empty where they can."""
        return ""

    def settings(self) -> dict[str, Any]:
        """What must stay the same when a run is resumed: the public attributes, those of a critic included.

        State that changes in training belongs in `auxiliary`, or in attributes that begin with an underscore.
        """
        return plain_settings(self, leave_out=["auxiliary"])

    def begin(self, model: Any, x: Points, generator: torch.Generator) -> None:
        """Look at some points once before training, and make `auxiliary`. By default there is nothing to make."""
        del model, x, generator

    @abstractmethod
    def model_loss(self, model: Any, x: Points, generator: torch.Generator) -> Scalar:
        """The loss of the model's parameters."""


class AuxiliaryObjective(TrainingObjective):
    """An objective whose auxiliary parameters have a loss of their own.

    Attributes:
        auxiliary_steps: How many steps on the auxiliary loss come before each step of the model, each on its own batch.
    """

    auxiliary_steps: int

    @abstractmethod
    def auxiliary_loss(self, model: Any, x: Points, generator: torch.Generator) -> Scalar:
        """The loss of the auxiliary parameters, the model held fixed."""
