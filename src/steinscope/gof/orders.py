"""Random orders of the points: critics go through them block by block, and one critic is explained over all of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from steinscope.chains import Chains
from steinscope.errors import InputError
from steinscope.explanation import Explanation, Tally, contributions
from steinscope.metric import Metric
from steinscope.points import ScoredPoints, temporary_rows
from steinscope.portfolio.choice import CriticChoice, make_learner
from steinscope.portfolio.learner import Context, Learner, ValueLearner
from steinscope.support.randomness import make_generator

__all__ = ["Order", "Passage", "explain_orders", "run_blocks"]

_BATCH_ROWS = 8192
_SCALE_ROWS = 1024
_SCALE_POINTS = 8192


@dataclass(frozen=True)
class Order:
    """The points in random order, divided into blocks, in coordinates of unit scale.

    Arguments:
        points: The points as the user knows them.
        moved: The points in the coordinates of critics.
        parts: The rows of each block.
        context: What learners may know.
        batch: How many rows in a row of a block belong together, as dependent draws of a chain do.
    """

    points: ScoredPoints
    moved: ScoredPoints
    parts: Sequence[Tensor]
    context: Context
    batch: int = 1

    @classmethod
    def draw(
        cls,
        points: ScoredPoints,
        model: Any,
        blocks: int,
        seed: int,
        starts: Tensor | None = None,
        chains: Chains | None = None,
    ) -> Order:
        """The order of a seed."""
        generator = make_generator(seed)
        if chains is None:
            parts: Sequence[Tensor] = torch.randperm(len(points), generator=generator).tensor_split(blocks)
        else:
            first, *others = chains.parts(blocks, generator)
            parts = [torch.cat([chains.left, first]), *others]
        # Units of single coordinates must not matter. They are taken from the first block, which is not tested.
        metric = Metric.by_scores(*points.take(parts[0][:_SCALE_POINTS]))
        time = 1.0 if chains is None else chains.time
        context = Context(model, metric, tuple(points.x.shape[1:]), points.dtype, seed, starts, time)
        return cls(points, points.in_metric(metric), parts, context, 1 if chains is None else chains.batch)

    @property
    def sizes(self) -> np.ndarray:
        """The number of points of each tested block."""
        return np.array([len(part) for part in self.parts[1:]])

    def learners(self, critics: Sequence[CriticChoice]) -> list[ValueLearner]:
        """Fresh learners."""
        return [make_learner(critic, self.context) for critic in critics]

    def values(self, learners: Sequence[ValueLearner]) -> np.ndarray:
        """The weighted values of the learners, which are shown one block after the other."""
        return run_blocks(self.moved, self.parts, learners)


@dataclass(frozen=True)
class Passage:
    """The way of a critic through an order, and what it takes to go it again.

    Arguments:
        draw: Makes the order again.
        metric: The coordinates that it had.
        norm: The root of the sum of squares of the critic's weighted Stein values.
    """

    draw: Callable[[], Order]
    metric: Metric
    norm: float


def run_blocks(
    points: ScoredPoints,
    parts: Sequence[Tensor],
    learners: Sequence[ValueLearner],
    watch: Callable[[Tensor, Tensor, Tensor, np.ndarray], None] | None = None,
) -> np.ndarray:
    """Show the blocks to the learners, one after the other, and return the weighted Stein values, learner by point.

    The first block has no values. Those of a block are weighted by √(points before it) over the scale that its critic
    had on the block before. Both are known before the block is looked at, so the weighted values are martingale
    differences where the model is right. `watch` is given the rows of each tested batch, the batch and its weights.
    """
    values: list[np.ndarray] = []
    factor, before = np.zeros(len(learners)), 0
    for number, part in enumerate(parts):
        for start in range(0, len(part), _BATCH_ROWS):
            x, score = (rows.reshape(len(rows), -1) for rows in points.take(part[start : start + _BATCH_ROWS]))
            if number == 0 and start == 0:
                for learner in learners:
                    learner.begin(x, score)
            if number > 0:
                values.append(_stein_values(learners, x, score) * factor[:, None])
                if watch is not None:
                    watch(part[start : start + _BATCH_ROWS], x, score, factor)
            for learner in learners:
                learner.observe(x, score)
        before += len(part)
        if number < len(parts) - 1:
            for learner in learners:
                learner.refit()
            # Half of a block tells the scale well enough, and costs half as much.
            rows = slice(min(_SCALE_ROWS, math.ceil(len(x) / 2)))
            scale = np.sqrt(np.square(_stein_values(learners, x[rows], score[rows])).mean(1))
            factor = np.where(scale > 0, math.sqrt(before) / np.maximum(scale, 1e-300), 0.0)
    return np.concatenate(values, axis=1)


def _stein_values(learners: Sequence[ValueLearner], x: Tensor, score: Tensor) -> np.ndarray:
    return torch.stack([learner.values(x, score) for learner in learners]).double().cpu().numpy()


def explain_orders(
    points: ScoredPoints,
    passages: Sequence[Passage],
    critic: CriticChoice,
    expected_z: float,
    worst: int,
) -> Explanation:
    """Go through the blocks again with one critic, and add up what coordinates and points contribute to its z-score.

    That is the mean over the orders. What a coordinate contributes does not depend on its unit.

    Arguments:
        points: The points as the user knows them.
        passages: Its ways through the orders.
        critic: The critic.
        expected_z: Its z-score in the test.
        worst: How many of the worst points to keep.
    """
    tally, changed = (
        Tally(points, worst),
        InputError("explain", "x or the model has changed since the test; test again"),
    )
    shape = len(points), points.outer_dim
    terms = np.zeros(shape) if points.in_memory else temporary_rows(shape, torch.float64)
    is_tested = np.zeros(len(points), dtype=bool)
    for passage in passages:
        order = passage.draw()
        (learner,), metric = order.learners([critic]), order.context.metric
        if not metric.is_close_to(passage.metric):
            raise changed
        assert isinstance(learner, Learner), "a critic without a field is not explained"

        def watch(
            index: Tensor,
            z: Tensor,
            score: Tensor,
            factor: np.ndarray,
            learner: Learner = learner,
            share: float = 1 / (passage.norm * len(passages)),
        ) -> None:
            rows = index.cpu().numpy()
            terms[rows] += contributions(z, score, learner.field, points.coordinates) * (float(factor[0]) * share)
            is_tested[rows] = True

        run_blocks(order.moved, order.parts, [learner], watch)
    if not math.isclose(float(terms.sum()), expected_z, rel_tol=1e-3, abs_tol=1e-2):
        raise changed
    for rows in np.array_split(np.flatnonzero(is_tested), math.ceil(len(points) / _BATCH_ROWS)):
        shown = points.original(points.take(torch.from_numpy(rows))[0])
        tally.add_terms(rows, shown.detach().cpu().numpy(), terms[rows])
    learner.refit()

    def final(x: Tensor) -> tuple[Tensor, Tensor]:
        f, slopes = learner.field(metric.points(x))
        return metric.field_in_x(f), slopes

    found = tally.finish(learner.name, "z-score", lambda values: 1.0, final)
    # Draws of chains are worth fewer independent ones.
    return replace(found, stderr=found.stderr * math.sqrt(order.context.time))
