"""The prequential test: each block is tested by critics that have seen only the blocks before it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from steinscope.errors import InputError
from steinscope.explanation import Explanation, Recipe, Tally
from steinscope.gof.combination import ORDER_NOTE, combine, combined_pvalue, soft_maximum
from steinscope.metric import Metric
from steinscope.points import ScoredPoints
from steinscope.portfolio.choice import CriticChoice, critic_name, is_closed_form, make_learner
from steinscope.portfolio.learner import Context, Learner
from steinscope.results import CriticResult, TestResult
from steinscope.support.normal import upper_tail
from steinscope.support.randomness import make_generator

__all__ = ["prequential_test", "run_blocks"]

_BATCH_ROWS = 8192
_SCALE_ROWS = 1024
_SCALE_POINTS = 8192
_BEYOND_DOUBT = 1e-6


def prequential_test(
    points: ScoredPoints, model: Any, critics: list[CriticChoice], blocks: int, alpha: float, seed: int
) -> TestResult:
    """Test the points block by block, and combine what the critics found.

    Arguments:
        points: The points and the model's scores.
        model: The model as the user gave it.
        critics: The critics, as `choose_critics` returns them.
        blocks: Into how many blocks the points are divided.
        alpha: The level.
        seed: The order of the points and all that is random in the critics.
    """
    order = torch.randperm(len(points), generator=make_generator(seed))
    parts = order.tensor_split(blocks)
    # Units of single coordinates must not matter. They are taken from the first block, which is not tested.
    metric = Metric.by_scores(*points.take(parts[0][:_SCALE_POINTS]))
    moved, context = points.in_metric(metric), Context(model, metric, tuple(points.x.shape[1:]), points.dtype, seed)
    # Critics in closed form go first: where they have rejected beyond doubt nobody else need run.
    cheap = [critic for critic in critics if is_closed_form(critic)]
    dear = [critic for critic in critics if not is_closed_form(critic)]
    learners = [make_learner(critic, context) for critic in cheap or dear]
    values = run_blocks(moved, parts, learners)
    notes = [ORDER_NOTE]
    if cheap and dear:
        if len(critics) * upper_tail(combine(values, parts).z.max()) < _BEYOND_DOUBT:
            left = ", ".join(map(critic_name, dear))
            notes.append(f"the critics in closed form reject beyond doubt, so others were not run: {left}")
        else:
            others = [make_learner(critic, context) for critic in dear]
            values = np.concatenate([values, run_blocks(moved, parts, others)])
            learners += others
    found = combine(values, parts)
    if len(learners) < len(critics):
        pvalue = len(critics) * upper_tail(found.z.max())
    else:
        pvalue = combined_pvalue(found.z, found.correlation)
    sizes = np.array([len(part) for part in parts[1:]])
    results = tuple(
        CriticResult(learner.name, float(z), upper_tail(z), sizes, block_z, block_weight)
        for learner, z, block_z, block_weight in zip(learners, found.z, found.block_z, found.block_weight, strict=True)
    )
    findings = tuple(finding.named(points.names) for learner in learners for finding in learner.findings())
    return TestResult(
        soft_maximum(found.z),
        pvalue,
        alpha,
        f"Learned Stein test, {blocks} prequential blocks",
        len(points),
        points.dim,
        results,
        findings,
        tuple(notes),
        Recipe(
            lambda worst, position: _explain(
                points, moved, [*cheap, *dear][position], context, parts, results[position].z, worst
            )
        ),
    )


def _explain(
    points: ScoredPoints,
    moved: ScoredPoints,
    critic: CriticChoice,
    context: Context,
    parts: Sequence[Tensor],
    expected_z: float,
    worst: int,
) -> Explanation:
    """Go through the blocks again with one critic, and add up what coordinates and points contribute to its z-score.

    What a coordinate contributes does not depend on its unit.
    """
    learner, tally, metric = make_learner(critic, context), Tally(points, worst), context.metric

    changed = InputError("explain", "x or the model has changed since the test; test again")

    def watch(index: Tensor, z: Tensor, score: Tensor, factor: np.ndarray) -> None:
        x = points.take(index)[0].reshape(len(index), -1)
        if not torch.allclose(metric.points(x), z, rtol=1e-3, atol=1e-3):
            raise changed
        tally.add(index, z, score, learner.field, float(factor[0]), shown=x)

    z = float(combine(run_blocks(moved, parts, [learner], watch), parts).z[0])
    if not math.isclose(z, expected_z, rel_tol=1e-3, abs_tol=1e-2):
        raise changed
    learner.refit()

    def final(x: Tensor) -> tuple[Tensor, Tensor]:
        f, slopes = learner.field(metric.points(x))
        return metric.field_in_x(f), slopes

    return tally.finish(learner.name, "z-score", lambda values: float(np.linalg.norm(values)), final, points.dtype)


def run_blocks(
    points: ScoredPoints,
    parts: Sequence[Tensor],
    learners: list[Learner],
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
            scale = np.sqrt(np.square(_stein_values(learners, x[:_SCALE_ROWS], score[:_SCALE_ROWS])).mean(1))
            factor = np.where(scale > 0, math.sqrt(before) / np.maximum(scale, 1e-300), 0.0)
    return np.concatenate(values, axis=1)


def _stein_values(learners: list[Learner], x: Tensor, score: Tensor) -> np.ndarray:
    return torch.stack([learner.values(x, score) for learner in learners]).double().cpu().numpy()
