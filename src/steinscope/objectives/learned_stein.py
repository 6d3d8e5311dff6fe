"""Training by the learned Stein discrepancy (Algorithm 3 of the paper)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from steinscope.critics.base import Critic
from steinscope.critics.mlp import MLP
from steinscope.critics.network import as_critic
from steinscope.critics.preconditioned import Preconditioned
from steinscope.densities import (
    Density,
    WithScoreAlong,
    as_density,
    call_model,
    differentiable_score,
    knows_log_prob,
)
from steinscope.errors import InputError
from steinscope.maps.divergence import value_and_hutchinson
from steinscope.objectives.base import AuxiliaryObjective
from steinscope.objectives.jumps import Jumps
from steinscope.objectives.score_network import ScoreNetwork
from steinscope.shapes import PerPoint, Points, Scalar, flattened
from steinscope.stein import PenalisedLSD
from steinscope.support.checks import check_count, check_flag, check_number

__all__ = ["LearnedStein"]

# Of the network that learns the score of the data.
_WIDTH, _DROPOUT = 128, 0.2
# Random directions for each held-out point.
_PROBES = 4
# Where a jump lands from one Gaussian mode in another the density is exp(-d) of what it was, so that with more
# coordinates jumps tell nothing.
_MOST_COORDINATES = 10


class LearnedStein(AuxiliaryObjective):
    r"""Train a critic to see the misfit, and the model to hide it.

    The critic f maximises its mean Stein value minus λE‖f‖². The model minimises the mean of s·f with the critic held
    fixed: the divergence of f does not depend on the model and is left out.

    By default the critic is what the model's score differs by from that of the data, $f = (s - g) / 2\lambda$, with g a
    Gaussian's score plus a network. Its penalised discrepancy is the score matching objective of the model minus that
    of g, over 2λ. So g learns the score of the data, whatever the model is, and need not follow the model about.

    Held-out points watch over g: the network that was best on them is the one that is used. If g is right, then
    $E[s \cdot g + \nabla \cdot s] = 0$ for the model's score s. Otherwise g is blind to where the model went. That term
    is added to the loss, which makes it score matching: in full as long as no point has come twice, so that nothing can
    be learned by heart, and then only as far as held-out points say that g is blind.

    Scores do not say how the mass is divided between modes that lie apart. If the model has a log-density, jumps of
    points from one place to another do, and in few dimensions their loss is added (`steinscope.objectives.jumps`).

    With `residual=False`, or with a critic of your own, the network is f itself and nothing jumps, as in the paper.

    Arguments:
        critic: The critic or network to start from; by default an `MLP` with two hidden layers and a linear skip, of
            128 units with dropout where it is the network of g, and of 300 units without where it is f.
        l2: The penalty λ. With g it only scales the losses.
        critic_steps: Steps of the critic before each step of the model, each on its own batch; by default 2 for g and 5
            for f.
        precondition: Whether the network works in coordinates in which the points have identity covariance. It makes
            the problem well conditioned whatever the scale of the data.
        shrinkage: How far the covariance is moved towards a multiple of the identity before that, from 0 to 1. With 1
            the points are only centred and divided by one number. By default 0.01 for f, and for g what points that are
            left out of the covariance say.
        residual: Whether the network is that of g and not f; by default it is where no critic is given.
        jumps: Whether jumps between points weigh the modes of the model. By default they do if it has a log-density,
            the network is that of g, and points have at most 10 coordinates.
    """

    loss_meaning = (
        "The model's loss is the mean of its score times the critic, the part of the discrepancy that the model can "
        "change. The auxiliary loss is the critic's. Where the network stands for the score of the data, the default, "
        "it is the score matching objective of that network. Where the network is the critic itself, it is minus the "
        "penalised discrepancy: it falls while the critic learns, and rises towards zero as the model comes to fit. If "
        "it keeps falling, the model outruns its critic."
    )

    def __init__(
        self,
        critic: Critic | nn.Module | None = None,
        *,
        l2: float = 0.5,
        critic_steps: int | None = None,
        precondition: bool = True,
        shrinkage: float | None = None,
        residual: bool | None = None,
        jumps: bool | None = None,
    ) -> None:
        self.critic, self.l2 = critic, check_number("l2", l2, over=0)
        self.residual = critic is None if residual is None else check_flag("residual", residual)
        if critic_steps is None:
            critic_steps = 2 if self.residual else 5
        if shrinkage is None and not self.residual:
            shrinkage = 0.01
        self.critic_steps = check_count("critic_steps", critic_steps)
        self.precondition = precondition
        self.shrinkage = None if shrinkage is None else check_number("shrinkage", shrinkage, least=0, most=1)
        self.jumps = None if jumps is None else check_flag("jumps", jumps)
        self._jumps: Jumps | None = None
        self.auxiliary_steps = self.critic_steps

    @property
    def suggestions(self) -> Mapping[str, Any]:
        """A fast model and a slow network, both of which come to rest, points that are held out, and others that never
        come twice at the same place."""
        if not self.residual:
            return super().suggestions
        return {"lr": 5e-3, "auxiliary_lr": 1e-3, "lr_decay": True, "validation": True, "jitter": True}

    def begin(self, model: Any, x: Points, generator: torch.Generator) -> None:
        """Make the critic."""
        if self.jumps and not knows_log_prob(model):
            raise InputError("jumps", "the model has a score alone, expected log_prob(x) or energy(x)")
        dim = x[0].numel()
        by_default = self.jumps is None and self.residual and dim <= _MOST_COORDINATES and knows_log_prob(model)
        self._jumps = Jumps(x, generator) if self.jumps or by_default else None
        if self.critic is not None:
            critic = as_critic(self.critic)
        elif self.residual:
            critic = MLP(dim, _WIDTH, dropout=_DROPOUT, skip=True, seed=generator)
            # The network begins at the score of a Gaussian.
            for parameter in critic.layers[-1].parameters():
                nn.init.zeros_(parameter)
        else:
            critic = MLP(dim, skip=True, seed=generator)
        if self.residual:
            critic = critic.to(dtype=x.dtype, device=x.device)
            self.auxiliary = ScoreNetwork(critic, x, self.shrinkage, is_whitened=self.precondition)
            return
        if self.precondition and not isinstance(critic, Preconditioned):
            critic = Preconditioned.from_data(critic, x, self.shrinkage or 0.0)
        self.auxiliary = critic.to(dtype=x.dtype, device=x.device)

    def auxiliary_loss(self, model: Any, x: Points, generator: torch.Generator) -> Scalar:
        """Minus the penalised discrepancy; for g its score matching objective, which is the part that depends on g."""
        critic = self.auxiliary
        if isinstance(critic, ScoreNetwork):
            return critic.loss(x, generator)
        assert isinstance(critic, Critic)
        with torch.no_grad():
            score = as_density(model).score(x).detach()
        return -PenalisedLSD(self.l2)(*critic.stein(x, score, generator))

    def model_loss(self, model: Any, x: Points, generator: torch.Generator) -> Scalar:
        """The mean of s·f, the part of the discrepancy that depends on the model, and the loss of jumps."""
        loss = self._misfit(model, x, generator)
        if self._jumps is None:
            return loss
        g = self.auxiliary
        # Where the network is f, the model's own score is the best guess.
        score = g if isinstance(g, ScoreNetwork) else as_density(model).score
        return loss + self._jumps.loss(model, x, score, generator) / (2 * self.l2)

    def _misfit(self, model: Any, x: Points, generator: torch.Generator) -> Scalar:
        g = self.auxiliary
        if isinstance(g, ScoreNetwork) and float(g.correction):
            return self._corrected(g, model, x, generator)
        if isinstance(model, WithScoreAlong):
            score = as_density(model).score(x).detach() if self.residual else None
            f = self._field(x, score)
            return call_model(lambda points: model.score_along(points, f), x, "score_along").mean()
        score = _trainable_score(model, x)
        return flattened(score * self._field(x, score.detach())).sum(1).mean()

    def _corrected(self, g: ScoreNetwork, model: Any, x: Points, generator: torch.Generator) -> Scalar:
        score, divergence = value_and_hutchinson(
            lambda y: differentiable_score(model, y), x, 1, "rademacher", generator
        )
        with torch.no_grad():
            of_data = g(x)
        matched = 0.5 * flattened(score - of_data).square().sum(1)
        unseen = flattened(score * of_data).sum(1) + divergence
        return (matched + float(g.correction) * unseen).mean() / (2 * self.l2)

    def watch(self, model: Any, x: Points, generator: torch.Generator, *, is_first_pass: bool = False) -> None:
        """Keep g if it has become better, and say how far its blindness is to be corrected.

        In full where each point comes once, so that nothing can be learned by heart; otherwise as far as held-out
        points say that g is blind.
        """
        g = self.auxiliary
        if not isinstance(g, ScoreNetwork):
            return
        g.keep_better(x, generator)
        score, divergence = _score_and_divergence(model, x, generator)
        with torch.no_grad():
            unseen = (flattened(score * g(x)).sum(1) + divergence).double()
        error = float(unseen.std()) / math.sqrt(len(unseen))
        # A score without derivatives, such as that of a network of ReLUs, says nothing here.
        is_known = bool(divergence.any()) and error > 0 and math.isfinite(error)
        if not is_known:
            g.correction.fill_(0.0)
        else:
            g.correction.fill_(1.0 if is_first_pass else min(1.0, (float(unseen.mean()) / error) ** 2))

    def held_out_discrepancy(self, model: Any, x: Points, generator: torch.Generator) -> PerPoint:
        """The Stein value of the critic minus λ‖f‖² at each point."""
        critic = self.auxiliary
        if isinstance(critic, ScoreNetwork):
            score, divergence = _score_and_divergence(model, x, generator)
            of_data, its_divergence = _score_and_divergence(_Field(critic), x, generator)
            of_model, of_network = _score_matching(score, divergence), _score_matching(of_data, its_divergence)
            return (of_model - of_network) / (2 * self.l2)
        assert isinstance(critic, Critic)
        with torch.no_grad():
            was_training = critic.training
            values, norms = critic.eval().stein(x, as_density(model).score(x).detach(), generator)
            critic.train(was_training)
            return values - self.l2 * norms

    @torch.no_grad()
    def _field(self, x: Points, score: Points | None) -> Points:
        """The critic f at the points, where the model has this score; without dropout."""
        critic = self.auxiliary
        assert critic is not None
        return critic(x) if score is None or not self.residual else (score - critic(x)) / (2 * self.l2)


@dataclass(frozen=True)
class _Field:
    """A map of points as a model with that score."""

    score: Callable[[Tensor], Tensor]


def _score_and_divergence(model: Any, x: Points, generator: torch.Generator) -> tuple[Points, PerPoint]:
    score, divergence = value_and_hutchinson(
        lambda y: differentiable_score(model, y), x, _PROBES, "rademacher", generator
    )
    return score.detach(), divergence.detach()


def _score_matching(score: Points, divergence: PerPoint) -> PerPoint:
    """The score matching objective at each point."""
    return 0.5 * flattened(score).square().sum(1) + divergence


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
