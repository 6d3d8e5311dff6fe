"""Critics go through blocks of points: each block is tested by critics that have seen only the blocks before it.

Whatever looks at points is a visitor. Most of them keep sums alone, and so may look at points in several places.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from steinscope.explanation import contributions
from steinscope.gof.combination import BlockSums
from steinscope.points import VISIT_ROWS, ScoredPoints, SumVisitor, Visitor
from steinscope.portfolio.learner import Learner, ValueLearner
from steinscope.results import check_finite
from steinscope.unconstrained import Unconstrained

__all__ = ["HEAD_ROWS", "ExplainedTrial", "SumTrial", "ValueTrial", "run_blocks"]

# The first points of an order: scales and sizes are taken from them.
HEAD_ROWS = VISIT_ROWS
_VALUE_ROWS = 1024
_SCALE_ROWS = 1024


class _Lesson(SumVisitor):
    """A visitor that shows points to learners.

    Arguments:
        learners: The learners.
    """

    def __init__(self, learners: Sequence[ValueLearner]) -> None:
        self.learners = learners

    def __call__(self, rows: Tensor, x: Tensor, score: Tensor) -> None:
        for learner in self.learners:
            learner.observe(x, score)

    def apart(self) -> _Lesson:
        return _Lesson([learner.apart() for learner in self.learners])

    def brought(self) -> _Lesson:
        return _Lesson([learner.brought() for learner in self.learners])

    def join(self, other: _Lesson) -> None:
        for learner, elsewhere in zip(self.learners, other.learners, strict=True):
            learner.join(elsewhere)


class _Scale(SumVisitor):
    """A visitor that sums up the squares of the values of learners."""

    def __init__(self, learners: Sequence[ValueLearner], squares: np.ndarray | None = None) -> None:
        self.learners, self.squares = learners, np.zeros(len(learners)) if squares is None else squares

    def __call__(self, rows: Tensor, x: Tensor, score: Tensor) -> None:
        with np.errstate(over="ignore"):
            self.squares += np.square(_stein_values(self.learners, x, score)).sum(1)

    def apart(self) -> _Scale:
        return _Scale([learner.apart() for learner in self.learners], np.zeros_like(self.squares))

    def brought(self) -> _Scale:
        return _Scale([], self.squares)

    def join(self, other: _Scale) -> None:
        self.squares += other.squares


class _Trial(Visitor):
    """A visitor that takes the weighted values of learners before it shows them the points.

    Arguments:
        learners: The learners.
        factor: The weight of the values of each.
    """

    def __init__(self, learners: Sequence[ValueLearner], factor: np.ndarray) -> None:
        self.lesson, self.factor = _Lesson(learners), factor

    def __call__(self, rows: Tensor, x: Tensor, score: Tensor) -> None:
        self.write(rows, x, score, _stein_values(self.lesson.learners, x, score) * self.factor[:, None])
        self.lesson(rows, x, score)

    @abstractmethod
    def write(self, rows: Tensor, x: Tensor, score: Tensor, values: np.ndarray) -> None:
        """Write down the values, learner by point."""


class SumTrial(_Trial, SumVisitor):
    """A trial that keeps sums of the values."""

    def __init__(self, learners: Sequence[ValueLearner], factor: np.ndarray) -> None:
        super().__init__(learners, factor)
        self.sums = BlockSums.empty(len(learners))

    def write(self, rows: Tensor, x: Tensor, score: Tensor, values: np.ndarray) -> None:
        self.sums.add(values)

    def brought(self) -> SumTrial:
        other = SumTrial(self.lesson.brought().learners, self.factor)
        other.sums = self.sums
        return other

    def apart(self) -> SumTrial:
        return SumTrial(self.lesson.apart().learners, self.factor)

    def join(self, other: SumTrial) -> None:
        self.lesson.join(other.lesson)
        self.sums.join(other.sums)


class ValueTrial(_Trial):
    """A trial that keeps all values, in the order of the points."""

    def __init__(self, learners: Sequence[ValueLearner], factor: np.ndarray) -> None:
        super().__init__(learners, factor)
        self.batches: list[np.ndarray] = []

    def write(self, rows: Tensor, x: Tensor, score: Tensor, values: np.ndarray) -> None:
        self.batches.append(values)

    @property
    def values(self) -> np.ndarray:
        """All of them, learner by point."""
        return np.concatenate(self.batches, axis=1)


class ExplainedTrial(_Trial):
    """A trial of one learner that adds what each coordinate of each point contributes.

    Arguments:
        learners: The learner.
        factor: The weight of its values.
        terms: What contributions are added to, point by coordinate.
        is_tested: Where the points that were looked at are marked.
        share: What contributions are multiplied by.
        coordinates: The unconstrained coordinates of the points, if they are in such.
    """

    def __init__(
        self,
        learners: Sequence[ValueLearner],
        factor: np.ndarray,
        *,
        terms: np.ndarray,
        is_tested: np.ndarray,
        share: float,
        coordinates: Unconstrained | None,
    ) -> None:
        super().__init__(learners, factor)
        (self.learner,) = learners
        self.terms, self.is_tested, self.share, self.coordinates = terms, is_tested, share, coordinates

    def write(self, rows: Tensor, x: Tensor, score: Tensor, values: np.ndarray) -> None:
        assert isinstance(self.learner, Learner), "a critic without a field is not explained"
        index, weight = rows.cpu().numpy(), float(self.factor[0]) * self.share
        self.terms[index] += contributions(x, score, self.learner.field, self.coordinates) * weight
        self.is_tested[index] = True


Trial = TypeVar("Trial", bound=_Trial)


def run_blocks(
    points: ScoredPoints,
    parts: Sequence[Tensor],
    learners: Sequence[ValueLearner],
    trial: Callable[[Sequence[ValueLearner], np.ndarray], Trial],
) -> list[Trial]:
    """Show the blocks to the learners, one after the other, and return the trial of each block but the first.

    The values of a block are weighted by √(points before it) over the scale that its critic had on the block before.
    Both are known before the block is looked at, so the weighted values are martingale differences where the model is
    right.

    Arguments:
        points: The points in the coordinates of the critics.
        parts: The rows of each block.
        learners: Fresh learners.
        trial: Makes the visitor of a block, from learners and the weights of their values.
    """
    head, rest = parts[0][:HEAD_ROWS], parts[0][HEAD_ROWS:]
    x, score = (rows.reshape(len(head), -1) for rows in points.take(head))
    for learner in learners:
        learner.begin(x, score)
        learner.observe(x, score)
    points.visit(rest, _Lesson(learners))
    trials, before = [], 0
    for earlier, part in pairwise(parts):
        before += len(earlier)
        for learner in learners:
            learner.refit()
        # Half of a batch tells the scale well enough, and costs half as much.
        batch = earlier[(len(earlier) - 1) // VISIT_ROWS * VISIT_ROWS :]
        batch = batch[: min(_SCALE_ROWS, math.ceil(len(batch) / 2))]
        points.visit(batch, found := _Scale(learners))
        scale = np.sqrt(found.squares / len(batch))
        for learner, one in zip(learners, scale.tolist(), strict=True):
            # An infinite scale would make nothing of all values, and a verdict of that.
            check_finite("Learned Stein test", f"scale of {learner.name}", one)
        factor = np.where(scale > 0, math.sqrt(before) / np.maximum(scale, 1e-300), 0.0)
        trials.append(trial(learners, factor))
        points.visit(part, trials[-1])
    return trials


def _stein_values(learners: Sequence[ValueLearner], x: Tensor, score: Tensor) -> np.ndarray:
    # The kernel critic has several arrays of rows by points seen, which for a whole batch would be gigabytes.
    pieces = list(zip(x.split(_VALUE_ROWS), score.split(_VALUE_ROWS), strict=True))
    values = [torch.cat([learner.values(*piece) for piece in pieces]) for learner in learners]
    return torch.stack(values).double().cpu().numpy()
