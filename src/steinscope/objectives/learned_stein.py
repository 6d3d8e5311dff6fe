"""Training by the learned Stein discrepancy (Algorithm 3 of the paper)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from steinscope.critics.base import Critic
from steinscope.critics.mlp import MLP
from steinscope.critics.network import as_critic
from steinscope.critics.preconditioned import Preconditioned
from steinscope.densities import Density, WithScoreAlong, as_density, call_model, differentiable_score
from steinscope.errors import InputError
from steinscope.objectives.base import AuxiliaryObjective
from steinscope.shapes import Points, Scalar, flattened
from steinscope.stein import PenalisedLSD
from steinscope.support.checks import check_count, check_number

__all__ = ["LearnedStein"]


class LearnedStein(AuxiliaryObjective):
    """Train a critic to see the misfit, and the model to hide it.

    The critic maximises its mean Stein value minus λE‖f‖². The model minimises the mean of s·f with the critic held
    fixed: the divergence of f does not depend on the model and is left out.

    Arguments:
        critic: The critic or network to start from; by default an `MLP` of two layers with 300 units and a linear skip.
        l2: The penalty λ.
        critic_steps: Steps of the critic before each step of the model, each on its own batch.
        precondition: Whether the critic works in coordinates in which the points have identity covariance. It makes the
            problem well conditioned whatever the scale of the data.
        shrinkage: How far the covariance is moved towards a multiple of the identity before that, from 0 to 1. With 1
            the points are only centred and divided by one number, so that no direction counts more than another.
    """

    loss_meaning = (
        "The model's loss is the mean of its score times the critic, the part of the discrepancy that the model can "
        "change. The auxiliary loss is the critic's, minus the penalised discrepancy: it falls while the critic "
        "learns, and rises towards zero as the model comes to fit. If it keeps falling, the model outruns its critic."
    )

    def __init__(
        self,
        critic: Critic | nn.Module | None = None,
        *,
        l2: float = 0.5,
        critic_steps: int = 5,
        precondition: bool = True,
        shrinkage: float = 0.01,
    ) -> None:
        check_number("l2", l2, over=0)
        check_count("critic_steps", critic_steps)
        check_number("shrinkage", shrinkage, least=0, most=1)
        self.critic, self.l2, self.critic_steps = critic, l2, critic_steps
        self.precondition, self.shrinkage = precondition, shrinkage
        self.auxiliary_steps = critic_steps

    def begin(self, model: Any, x: Points, generator: torch.Generator) -> None:
        """Make the critic."""
        if self.critic is None:
            critic: Critic = MLP(x[0].numel(), skip=True, seed=generator)
        else:
            critic = as_critic(self.critic)
        if self.precondition and not isinstance(critic, Preconditioned):
            critic = Preconditioned.from_data(critic, x, self.shrinkage)
        self.auxiliary = critic.to(dtype=x.dtype, device=x.device)

    def _critic(self) -> Critic:
        assert isinstance(self.auxiliary, Critic)
        return self.auxiliary

    def auxiliary_loss(self, model: Any, x: Points, generator: torch.Generator) -> Scalar:
        """Minus the penalised discrepancy."""
        with torch.no_grad():
            score = as_density(model).score(x).detach()
        return -PenalisedLSD(self.l2)(*self._critic().stein(x, score, generator))

    def model_loss(self, model: Any, x: Points, generator: torch.Generator) -> Scalar:
        """The mean of s·f, the part of the discrepancy that depends on the model."""
        with torch.no_grad():
            f = self._critic()(x)
        if isinstance(model, WithScoreAlong):
            return call_model(lambda points: model.score_along(points, f), x, "score_along").mean()
        return flattened(_trainable_score(model, x) * f).sum(1).mean()


def _trainable_score(model: Any, x: Tensor) -> Tensor:
    """The score with a graph to the model's parameters: the model's own where it has one, otherwise by autograd."""
    if isinstance(model, Density):
        score = as_density(model).score(x)
        if score.requires_grad:
            return score
    score = differentiable_score(model, x)
    if not score.requires_grad:
        raise InputError("model", "its score does not depend on its parameters through torch operations")
    return score
