"""Random orders of the points: critics go through them, and one critic is explained over all of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from steinscope.chains import Chains
from steinscope.errors import InputError
from steinscope.explanation import Explanation, Tally
from steinscope.gof.combination import Combined, combine_sums, combine_values
from steinscope.gof.trials import HEAD_ROWS, ExplainedTrial, SumTrial, ValueTrial, run_blocks
from steinscope.metric import Metric
from steinscope.points import VISIT_ROWS, ScoredPoints, temporary_rows
from steinscope.portfolio.choice import CriticChoice, make_learner
from steinscope.portfolio.learner import Context, Learner, ValueLearner
from steinscope.support.randomness import make_generator

__all__ = ["Order", "Passage", "explain_orders"]


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
        metric = Metric.by_scores(*points.take(parts[0][:HEAD_ROWS]))
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

    def results(self, learners: Sequence[ValueLearner]) -> Combined:
        """What the learners find, which are shown one block after the other."""
        if self.batch == 1:
            trials = run_blocks(self.moved, self.parts, learners, SumTrial)
            return combine_sums([trial.sums for trial in trials])
        trials = run_blocks(self.moved, self.parts, learners, ValueTrial)
        return combine_values([trial.values for trial in trials], self.batch)


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


def explain_orders(
    points: ScoredPoints,
    passages: Sequence[Passage],
    critic: CriticChoice,
    expected_z: float,
    worst: int,
    batch: int = 1,
) -> Explanation:
    """Go through the blocks again with one critic, and add up what coordinates and points contribute to its z-score.

    That is the mean over the orders. What a coordinate contributes does not depend on its unit.

    Arguments:
        points: The points as the user knows them.
        passages: Its ways through the orders.
        critic: The critic.
        expected_z: Its z-score in the test.
        worst: How many of the worst points to keep.
        batch: How many rows in a row of a block belong together, as dependent draws of a chain do.
    """
    tally = Tally(points, worst, batch)
    changed = InputError("explain", "x or the model has changed since the test; test again")
    shape = len(points), points.outer_dim
    terms = np.zeros(shape) if points.in_memory else temporary_rows(shape, torch.float64)
    is_tested = np.zeros(len(points), dtype=bool)
    for passage in passages:
        order = passage.draw()
        (learner,), metric = order.learners([critic]), order.context.metric
        if not metric.is_close_to(passage.metric):
            raise changed
        assert isinstance(learner, Learner), "a critic without a field is not explained"

        share = 1 / (passage.norm * len(passages))
        trial = partial(ExplainedTrial, terms=terms, is_tested=is_tested, share=share, coordinates=points.coordinates)
        run_blocks(order.moved, order.parts, [learner], trial)
    if not math.isclose(float(terms.sum()), expected_z, rel_tol=1e-3, abs_tol=1e-2):
        raise changed
    # Blocks are of whole batches, so what was tested is, too.
    tested = np.flatnonzero(is_tested).reshape(-1, batch)
    for batches in np.array_split(tested, min(len(tested), math.ceil(len(points) / VISIT_ROWS))):
        rows = batches.reshape(-1)
        shown = points.original(points.take(torch.from_numpy(rows))[0])
        tally.add_terms(rows, shown.detach().cpu().numpy(), terms[rows])
    learner.refit()

    def final(x: Tensor) -> tuple[Tensor, Tensor]:
        f, slopes = learner.field(metric.points(x))
        return metric.field_in_x(f), slopes

    return tally.finish(learner.name, "z-score", lambda values: 1.0, final)
