"""Critics of `steinscope.critics` in the portfolio: trained from block to block, or solved after each."""

from __future__ import annotations

import copy
import math
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from steinscope.critics.base import Critic, trainable_parameters
from steinscope.critics.fitting import History, fit_points
from steinscope.critics.mlp import MLP
from steinscope.points import ScoredPoints
from steinscope.portfolio.learner import Context, Learner
from steinscope.settings import FitSettings
from steinscope.shapes import FlatPoints, PerPoint
from steinscope.stein import PenalisedLSD
from steinscope.support.randomness import make_generator

__all__ = ["CriticLearner", "NetworkLearner", "TrainedLearner"]

_ENOUGH_POINTS = 500
# A network that has found nothing beyond the other critics after so many validations finds nothing later.
_HOPELESS_AFTER = 6


class TrainedLearner(Learner):
    """What learners share that hold a `Critic`: it is trained by gradient steps from block to block, or solved after
    each block where it can be.

    Arguments:
        steps: Steps of Adam after each block.
        most_points: How many of the points seen so far are kept, the newest first.
        lr: The learning rate once 500 points have been seen. Before that it is smaller, by the root of their share: a
            critic that has fitted few points closely gives Stein values so skewed that the test rejects too often.
        objective: What is maximised. By default the penalised LSD: maximising power makes values skewed, too.
        weight_decay: Added to the gradient as weight_decay times the weights.
        ridge: For a critic that is solved, as in `Features.solve`.
        seed: The source of dropout and probes.
    """

    def __init__(
        self,
        *,
        steps: int = 10,
        most_points: int = 4096,
        lr: float = 1e-2,
        objective: PenalisedLSD | None = None,
        weight_decay: float = 5e-4,
        ridge: float = 1.0,
        seed: int = 0,
    ) -> None:
        self.steps, self.most_points, self.lr, self.ridge = steps, most_points, lr, ridge
        self.objective = objective or PenalisedLSD()
        self.weight_decay, self.seed = weight_decay, seed

    @property
    def is_solvable(self) -> bool:
        """Whether the critic is solved in closed form."""
        return False

    @abstractmethod
    def make_critic(self, x: FlatPoints) -> Critic:
        """The critic to start from, for points like these."""

    def begin(self, x: FlatPoints, score: FlatPoints) -> None:
        self.critic = self.make_critic(x).to(x)
        self.generator = make_generator(self.seed, x.device, purpose="critic")
        self.kept: list[tuple[Tensor, Tensor]] = []
        if not self.critic.is_solvable:
            parameters = trainable_parameters(self.critic)
            self.optimiser = torch.optim.Adam(parameters, lr=self.lr, weight_decay=self.weight_decay, fused=True)

    def fit(
        self,
        training: ScoredPoints,
        validation: ScoredPoints,
        l2: float,
        settings: FitSettings,
        *,
        progress: bool | None = None,
        title: str = "critic",
    ) -> History:
        """Train on points as a whole and let validation points choose, for an estimate."""
        critic = self.make_critic(training.take(slice(1))[0])
        objective = PenalisedLSD(l2)
        fit = fit_points(
            critic,
            training,
            validation,
            objective,
            settings,
            seed=self.seed,
            progress=progress,
            title=title,
            give_up_after=_HOPELESS_AFTER,
        )
        self.critic, self.generator = fit.critic, make_generator(self.seed, training.device, purpose="critic")
        return fit.history

    def value_and_divergence(self, x: FlatPoints) -> tuple[FlatPoints, PerPoint]:
        return self.critic.eval().value_and_divergence(x, self.generator)

    @torch.no_grad()
    def values(self, x: FlatPoints, score: FlatPoints) -> PerPoint:
        return self.critic.eval().stein(x, score, self.generator)[0]

    def field(self, x: FlatPoints) -> tuple[FlatPoints, FlatPoints]:
        return self.critic.eval().value_and_diagonal(x)

    def observe(self, x: FlatPoints, score: FlatPoints) -> None:
        self.kept.insert(0, (x, score))
        total = 0
        for position, (batch, _) in enumerate(self.kept):
            total += len(batch)
            if total >= self.most_points:
                del self.kept[position + 1 :]
                break

    def refit(self) -> None:
        x, score = (torch.cat(parts) for parts in zip(*self.kept, strict=True))
        if self.critic.is_solvable:
            self.critic.solve([(x, score)], self.objective.l2, self.ridge)
            return
        self.critic.train()
        self.optimiser.param_groups[0]["lr"] = self.lr * min(1.0, math.sqrt(len(x) / _ENOUGH_POINTS))
        for _ in range(self.steps):
            with torch.enable_grad():
                loss = -self.objective(*self.critic.stein(x, score, self.generator))
            self.optimiser.zero_grad()
            loss.backward()
            self.optimiser.step()


class CriticLearner(TrainedLearner):
    """A critic of the user's.

    Arguments:
        critic: The critic to start from. It is copied, not changed.
        name: What results call it; by default its class.
        training: As in `TrainedLearner`.
    """

    def __init__(self, critic: Critic, name: str | None = None, **training: Any) -> None:
        super().__init__(**training)
        self.name, self.start = name or type(critic).__name__, critic

    @property
    def is_solvable(self) -> bool:
        """Whether the critic is solved in closed form."""
        return self.start.is_solvable

    def make_critic(self, x: FlatPoints) -> Critic:
        return copy.deepcopy(self.start)


class NetworkLearner(TrainedLearner):
    """An `MLP` of two layers, small in a test.

    Arguments:
        width: Units in each of its hidden layers.
        dropout: Its dropout.
        skip: Whether it has a linear skip.
        training: As in `TrainedLearner`.
    """

    name = "mlp"

    def __init__(self, width: int = 100, dropout: float = 0.5, skip: bool = False, **training: Any) -> None:
        super().__init__(**training)
        self.width, self.dropout, self.skip = width, dropout, skip

    @classmethod
    def for_test(cls, context: Context) -> Learner:
        return cls(seed=context.seed)

    @classmethod
    def for_estimate(cls, context: Context) -> Sequence[Learner]:
        """The critic of the paper, with a linear skip."""
        return (cls(300, skip=True, seed=context.seed),)

    def make_critic(self, x: FlatPoints) -> Critic:
        return MLP(x.shape[1], self.width, dropout=self.dropout, skip=self.skip, seed=self.seed)
