"""What every way of training a model has in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import nn

from steinscope.errors import InputError
from steinscope.shapes import PerPoint, Points, Scalar
from steinscope.support.description import plain_settings
from steinscope.support.randomness import default_generator

__all__ = ["AuxiliaryObjective", "TrainingObjective"]


class TrainingObjective(ABC):
    """A loss for the model, and maybe parameters beside the model that are trained on the same loss.

    In a training loop of your own an objective is called like any other loss:

        loss = ScoreMatching()
        loss(model, batch).backward()

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

    @property
    def suggestions(self) -> Mapping[str, Any]:
        """What `train` takes for `lr`, `auxiliary_lr` and `lr_decay`, whether it holds points out for `validation`, and
        whether points that come again `jitter`, where the user says nothing."""
        return {"lr": 1e-3, "auxiliary_lr": None, "lr_decay": False, "validation": False, "jitter": False}

    def settings(self) -> dict[str, Any]:
        """What must stay the same when a run is resumed: the public attributes, those of a critic included.

        State that changes in training belongs in `auxiliary`, or in attributes that begin with an underscore.
        """
        return plain_settings(self, leave_out=["auxiliary"])

    def begin(self, model: Any, x: Points, generator: torch.Generator) -> None:
        """Look at some points once before training, and make `auxiliary`. By default there is nothing to make."""
        del model, x, generator

    def watch(self, model: Any, x: Points, generator: torch.Generator, *, is_first_pass: bool = False) -> None:
        """Look at points that are held out of training, now and then. By default nothing is done with them.

        Arguments:
            model: The model.
            x: The points that are held out.
            generator: The source of what is random.
            is_first_pass: Whether each point comes once in training, so that none can be learned by heart.
        """
        del model, x, generator, is_first_pass

    def held_out_discrepancy(self, model: Any, x: Points, generator: torch.Generator) -> PerPoint | None:
        """What the critic finds of the misfit at points that it has not seen; None where there is no critic."""
        del model, x, generator
        return None

    @abstractmethod
    def model_loss(self, model: Any, x: Points, generator: torch.Generator) -> Scalar:
        """The loss of the model's parameters."""

    def __call__(self, model: Any, x: Points, generator: torch.Generator | None = None) -> Scalar:
        """The loss of the model's parameters on a batch, for a training loop of your own.

        Arguments:
            model: The model.
            x: The batch. `begin` looks at the first one; call it yourself with more points for better scales.
            generator: The source of what is random; the library's own generator if none is given.
        """
        return self.model_loss(model, x, self._ready(model, x, generator))

    def _ready(self, model: Any, x: Points, generator: torch.Generator | None) -> torch.Generator:
        generator = generator or default_generator(x.device)
        if self.auxiliary is None:
            self.begin(model, x, generator)
        return generator


class AuxiliaryObjective(TrainingObjective):
    """An objective whose auxiliary parameters have a loss of their own.

    Attributes:
        auxiliary_steps: How many steps on the auxiliary loss come before each step of the model, each on its own batch.
    """

    auxiliary_steps: int
    _optimiser: torch.optim.Optimizer | None = None
    _optimised: nn.Module | None = None

    @abstractmethod
    def auxiliary_loss(self, model: Any, x: Points, generator: torch.Generator) -> Scalar:
        """The loss of the auxiliary parameters, the model held fixed."""

    def critic_step(
        self, model: Any, x: Points, generator: torch.Generator | None = None, *, lr: float | None = None
    ) -> float:
        """One step of Adam on the auxiliary loss, for a training loop of your own.

        Arguments:
            model: The model, which is held fixed.
            x: A batch, better not the one that the model's step takes.
            generator: The source of what is random; the library's own generator if none is given.
            lr: The learning rate; by default what `train` takes.

        Returns:
            The loss before the step.
        """
        generator = self._ready(model, x, generator)
        if self.auxiliary is None:
            raise InputError("objective", f"{type(self).__name__} made nothing to train beside the model")
        if self._optimiser is None or self._optimised is not self.auxiliary:
            chosen = [parameter for parameter in self.auxiliary.parameters() if parameter.requires_grad]
            self._optimiser = torch.optim.Adam(chosen, betas=(0.5, 0.9))
            self._optimised = self.auxiliary
        rate = lr if lr is not None else self.suggestions["auxiliary_lr"] or self.suggestions["lr"]
        for group in self._optimiser.param_groups:
            group["lr"] = rate
        with torch.enable_grad():
            loss = self.auxiliary_loss(model, x, generator)
            self._optimiser.zero_grad()
            loss.backward(inputs=self._optimiser.param_groups[0]["params"])
        self._optimiser.step()
        return float(loss.detach())
