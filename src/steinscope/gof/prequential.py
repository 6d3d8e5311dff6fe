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
from steinscope.portfolio.choice import CriticChoice, critic_name, is_closed_form, make_learner, may_be_absent
from steinscope.portfolio.learner import Context, Learner, ValueLearner
from steinscope.results import CriticResult, TestResult, check_finite
from steinscope.support.normal import upper_tail
from steinscope.support.randomness import make_generator

__all__ = ["prequential_test", "run_blocks"]

_BATCH_ROWS = 8192
_SCALE_ROWS = 1024
_SCALE_POINTS = 8192
_BEYOND_DOUBT = 1e-6
MODES_NOTE = "weights of separated modes were not looked at: that takes a model with log_prob"


def prequential_test(
    points: ScoredPoints,
    model: Any,
    critics: list[CriticChoice],
    blocks: int,
    alpha: float,
    seed: int,
    starts: Tensor | None = None,
) -> TestResult:
    """Test the points block by block, and combine what the critics found.

    Arguments:
        points: The points and the model's scores.
        model: The model as the user gave it.
        critics: The critics, as `choose_critics` returns them.
        blocks: Into how many blocks the points are divided.
        alpha: The level.
        seed: The order of the points and all that is random in the critics.
        starts: Points from which modes of the model are searched, too.
    """
    order = torch.randperm(len(points), generator=make_generator(seed))
    parts = order.tensor_split(blocks)
    # Units of single coordinates must not matter. They are taken from the first block, which is not tested.
    metric = Metric.by_scores(*points.take(parts[0][:_SCALE_POINTS]))
    moved = points.in_metric(metric)
    context = Context(model, metric, tuple(points.x.shape[1:]), points.dtype, seed, starts)
    # Critics in closed form go first: where they have rejected beyond doubt nobody else need run.
    cheap = [critic for critic in critics if is_closed_form(critic)]
    dear = [critic for critic in critics if not is_closed_form(critic)]
    learners = [make_learner(critic, context) for critic in cheap or dear]
    values = run_blocks(moved, parts, learners)
    notes = [ORDER_NOTE]
    bound = None
    if cheap and dear:
        # A critic that may turn out to have nothing to test has no share in the bound.
        count = sum(not may_be_absent(critic) for critic in critics)
        bound = min(1.0, count * upper_tail(combine(values, parts).z.max()))
        if bound < _BEYOND_DOUBT:
            left = ", ".join(map(critic_name, dear))
            notes.append(f"the critics in closed form reject beyond doubt, so others were not run: {left}")
        else:
            bound, others = None, [make_learner(critic, context) for critic in dear]
            values = np.concatenate([values, run_blocks(moved, parts, others)])
            learners += others
    if not callable(getattr(model, "log_prob", None)):
        notes.append(MODES_NOTE)
    present = [number for number, learner in enumerate(learners) if learner.is_present]
    if not present:
        raise InputError("critics", "the model has one mode as far as can be seen, so 'modes' has nothing to test")
    learners, values = [learners[number] for number in present], values[present]
    chosen = [[*cheap, *dear][number] for number in present]
    found = combine(values, parts)
    check_finite("Learned Stein test", "sum of Stein values", float(values.sum()))
    pvalue = combined_pvalue(found.z, found.correlation) if bound is None else bound
    sizes = np.array([len(part) for part in parts[1:]])
    results = tuple(
        CriticResult(learner.name, float(z), upper_tail(z), sizes, block_z, block_weight)
        for learner, z, block_z, block_weight in zip(learners, found.z, found.block_z, found.block_weight, strict=True)
    )
    findings = tuple(finding.named(points.names) for learner in learners for finding in learner.findings())
    modes = next((table for learner in learners if (table := learner.mode_weights(alpha)) is not None), None)
    if modes is not None:
        findings = (*modes.findings(), *findings)
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
        modes,
        Recipe(
            lambda worst, position: _explain(
                points, moved, chosen[position], context, parts, results[position].z, worst
            ),
            tuple(learner.name for learner in learners if not isinstance(learner, Learner)),
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
    assert isinstance(learner, Learner), "a critic without a field is not explained"

    changed = InputError("explain", "x or the model has changed since the test; test again")

    def watch(index: Tensor, z: Tensor, score: Tensor, factor: np.ndarray) -> None:
        x = points.take(index)[0]
        if not torch.allclose(metric.points(x), z, rtol=1e-3, atol=1e-3):
            raise changed
        tally.add(index, z, score, learner.field, float(factor[0]), shown=points.original(x))

    z = float(combine(run_blocks(moved, parts, [learner], watch), parts).z[0])
    if not math.isclose(z, expected_z, rel_tol=1e-3, abs_tol=1e-2):
        raise changed
    learner.refit()

    def final(x: Tensor) -> tuple[Tensor, Tensor]:
        f, slopes = learner.field(metric.points(x))
        return metric.field_in_x(f), slopes

    return tally.finish(learner.name, "z-score", lambda values: float(np.linalg.norm(values)), final)


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
            scale = np.sqrt(np.square(_stein_values(learners, x[:_SCALE_ROWS], score[:_SCALE_ROWS])).mean(1))
            factor = np.where(scale > 0, math.sqrt(before) / np.maximum(scale, 1e-300), 0.0)
    return np.concatenate(values, axis=1)


def _stein_values(learners: Sequence[ValueLearner], x: Tensor, score: Tensor) -> np.ndarray:
    return torch.stack([learner.values(x, score) for learner in learners]).double().cpu().numpy()
