"""What a critic of the portfolio is: one that learns from points, and serves test and estimate alike.

In a test a learner is shown the points block by block. Before it takes in a block it gives the Stein values of that
block's points under the critic that it made from the blocks before. In an estimate it is shown the training points,
and validation points choose along its path of regularisation. Most learners make their critic in closed form from sums
over the points, so that a whole test costs a few passes of matrix products.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from steinscope.metric import Metric
from steinscope.modes.weights import ModeWeights
from steinscope.shapes import FlatPoints, PerPoint

__all__ = ["Context", "Learner", "ValueLearner"]


@dataclass(frozen=True)
class Context:
    """What a learner may know before it sees points. Most need nothing of it.

    Arguments:
        model: The model as the user gave it.
        metric: The coordinates that points and scores will be in.
        shape: The shape of a point as the user knows it.
        dtype: The floating type of points and scores.
        seed: The source of all that is random in the learner.
        starts: Points from which the user wants modes of the model to be searched, too.
        time: The autocorrelation time of the points, where they are draws of chains; 1 where they are independent.
    """

    model: Any
    metric: Metric
    shape: tuple[int, ...]
    dtype: torch.dtype
    seed: int
    starts: Tensor | None = None
    time: float = 1.0


class ValueLearner(ABC):
    """What a test asks of a critic: values of points that are zero on average where the model is right.

    Most critics are vector fields, and so a `Learner`. All points that it sees are in coordinates of unit scale.
    """

    name: str
    totals: ClassVar[tuple[str, ...] | None] = None
    """The attributes that are sums over the points, after the first batch; None where sums are not enough."""
    at_home: ClassVar[tuple[str, ...]] = ()
    """The attributes that neither values nor sums over further points need."""

    @classmethod
    def for_test(cls, context: Context) -> ValueLearner:
        """A fresh learner for a test."""
        return cls()

    @abstractmethod
    def begin(self, x: FlatPoints, score: FlatPoints) -> None:
        """Look at the first batch: sizes are taken from it, and stay fixed."""

    @abstractmethod
    def observe(self, x: FlatPoints, score: FlatPoints) -> None:
        """Take in points. The critic does not change yet."""

    @abstractmethod
    def refit(self) -> None:
        """Make the critic that a test uses from all points seen so far."""

    @abstractmethod
    def values(self, x: FlatPoints, score: FlatPoints) -> PerPoint:
        """The value of each point under the critic."""

    @property
    def is_present(self) -> bool:
        """Whether it takes part in the test, which it may decide by the first batch alone."""
        return True

    def apart(self) -> ValueLearner:
        """A copy whose sums begin at zero, to give values and take in points elsewhere."""
        other = copy.copy(self)
        for name in self.at_home:
            vars(other).pop(name, None)
        for name in self.totals or ():
            value = getattr(self, name)
            # Zeros need not travel: they get their size from the first points.
            setattr(other, name, value.new_zeros((1,) * value.ndim) if isinstance(value, Tensor) else 0)
        return other

    def brought(self) -> ValueLearner:
        """A copy that has the sums and nothing else."""
        other = copy.copy(self)
        vars(other).clear()
        vars(other).update({name: getattr(self, name) for name in self.totals or ()})
        return other

    def join(self, other: ValueLearner) -> None:
        """Add the sums of a copy that has taken in points elsewhere."""
        for name in self.totals or ():
            setattr(self, name, getattr(self, name) + getattr(other, name))

    def state(self) -> dict[str, Any]:
        """What it has learned: numbers, tensors, and lists of them, which can be saved."""
        return dict(vars(self))

    def restore(self, state: dict[str, Any]) -> None:
        """Take over what another of its kind had learned."""
        vars(self).update(state)

    def mode_weights(self, alpha: float) -> ModeWeights | None:
        """How points and model divide their mass between modes, where the critic looks at that."""
        return None


class Learner(ValueLearner):
    """A critic that is a vector field, learned from points. Its values are Stein values.

    A new one needs `begin`, `observe`, `refit` and `field`, and a line in `steinscope.registries.CRITICS`.
    """

    @classmethod
    def for_test(cls, context: Context) -> Learner:
        """A fresh learner for a test."""
        return cls()

    @classmethod
    def for_estimate(cls, context: Context) -> Sequence[Learner]:
        """Fresh learners for an estimate, which then weighs them: by default that of a test."""
        return (cls.for_test(context),)

    def path(self, l2: float) -> Iterator[None]:
        """Make one critic after the other for an estimate with the penalty λ, from all points seen so far.

        After each step the critic is the one just made. By default there is one, that of a test; its length does not
        matter, because the estimate finds the best.
        """
        self.refit()
        yield

    def snapshot(self) -> Learner:
        """The critic as it is now, which further steps along its path do not change."""
        return copy.copy(self)

    @abstractmethod
    def field(self, x: FlatPoints) -> tuple[FlatPoints, FlatPoints]:
        """The critic at points, and the diagonal of its Jacobian."""

    def value_and_divergence(self, x: FlatPoints) -> tuple[FlatPoints, PerPoint]:
        """The critic at points, and its divergence."""
        f, diagonal = self.field(x)
        return f, diagonal.sum(1)

    def looking_at(self, x: FlatPoints) -> Callable[[], tuple[FlatPoints, PerPoint]]:
        """A function that gives `value_and_divergence` at these points, for one critic of the path after the other.

        Learners whose features do not change along the path compute them once.
        """
        return lambda: self.value_and_divergence(x)

    @torch.no_grad()
    def values(self, x: FlatPoints, score: FlatPoints) -> PerPoint:
        """The Stein values of points under the critic."""
        f, divergence = self.value_and_divergence(x)
        return torch.linalg.vecdot(score, f) + divergence
