"""The prequential test: each block is tested by critics that have seen only the blocks before it.

Critics in closed form go through several random orders of the points, those that are trained through the first of them.
Tests over all pairs of points join them where points are few. The Cauchy combination makes one p-value of all.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from torch import Tensor

from steinscope.chains import Chains
from steinscope.errors import InputError
from steinscope.explanation import Explanation, Recipe
from steinscope.gof.combination import ORDER_NOTE, Combined, cauchy_pvalue, combined_pvalue, soft_maximum
from steinscope.gof.orders import Order, Passage, explain_orders
from steinscope.gof.pairs import MOST_POINTS, PAIR_CRITICS, pair_tests
from steinscope.metric import Metric
from steinscope.points import ScoredPoints
from steinscope.portfolio.choice import CriticChoice, critic_name, is_closed_form, may_be_absent
from steinscope.portfolio.learner import Learner, ValueLearner
from steinscope.results import CriticResult, PairResult, TestResult, check_finite
from steinscope.support.jobs import run_jobs
from steinscope.support.normal import upper_tail
from steinscope.support.randomness import next_seed

__all__ = ["PAIR_WEIGHTS", "prequential_test"]

_BEYOND_DOUBT = 1e-6
# All orders together have weight 1.
_TRAINED_WEIGHT = 0.15
PAIR_WEIGHTS = {"mean": 0.3, "linear": 0.1, "kernel": 0.2}
MODES_NOTE = "weights of separated modes were not looked at: that takes a model with log_prob"


@dataclass(frozen=True)
class _Runs:
    """What some critics found in one order after the other.

    Arguments:
        critics: The critics that have something to test.
        learners: Their learners in the first order.
        found: What they found in each order.
        metrics: The coordinates of each order.
    """

    critics: list[CriticChoice]
    learners: list[ValueLearner]
    found: list[Combined]
    metrics: list[Metric]

    @classmethod
    def through(
        cls,
        orders: Sequence[Callable[[], Order]],
        critics: list[CriticChoice],
        run: Callable[[list[Any]], Iterable[Any]],
    ) -> _Runs:
        """Send the critics through the orders, as `run` does such tasks."""
        first: list[ValueLearner] = []
        present: list[int] = []
        found: list[Combined] = []
        metrics: list[Metric] = []
        tasks = [partial(_go_through, draw, critics, keeps=number == 0) for number, draw in enumerate(orders)]
        for learners, one, metric in run(tasks):
            check_finite("Learned Stein test", "sum of Stein values", float((one.z * one.norm).sum()))
            if not first:
                first, present = learners, [i for i, learner in enumerate(learners) if learner.is_present]
            if present:
                found.append(one.only(present))
                metrics.append(metric)
        return cls([critics[i] for i in present], [first[i] for i in present], found, metrics)

    @property
    def pvalues(self) -> list[float]:
        """The p-value of each order."""
        return [combined_pvalue(one.z, one.correlation) for one in self.found]

    def passages(self, draws: Sequence[Callable[[], Order]], column: int) -> list[Passage]:
        """The ways of one critic through the orders, of which `draws` makes the first ones again."""
        norms = [float(one.norm[column]) for one in self.found]
        return [Passage(*way) for way in zip(draws, self.metrics, norms, strict=False)]

    def results(self, sizes: np.ndarray) -> list[CriticResult]:
        """Critic by critic, over the orders."""
        z = np.stack([one.z for one in self.found])
        block_z, block_weight = (np.mean([getattr(one, key) for one in self.found], 0) for key in _BLOCK_KEYS)
        return [
            CriticResult(
                learner.name,
                float(z[:, i].mean()),
                _merged(list(map(upper_tail, z[:, i]))),
                sizes,
                *blocks,
                order_z=z[:, i],
            )
            for i, (learner, *blocks) in enumerate(zip(self.learners, block_z, block_weight, strict=True))
        ]


_BLOCK_KEYS = ("block_z", "block_weight")


def _go_through(
    draw: Callable[[], Order], critics: list[CriticChoice], keeps: bool
) -> tuple[list[ValueLearner], Combined, Metric]:
    """The learners after an order, if they are to be kept, what they found, and its coordinates."""
    order = draw()
    learners = order.learners(critics)
    found = order.results(learners)
    return learners if keeps else [], found, order.context.metric


def _one_by_one(tasks: list[Callable[[], Any]]) -> Iterable[Any]:
    return (task() for task in tasks)


def _merged(pvalues: list[float]) -> float:
    return pvalues[0] if len(pvalues) == 1 else cauchy_pvalue(pvalues, [1.0] * len(pvalues))


def prequential_test(
    points: ScoredPoints,
    model: Any,
    critics: list[CriticChoice],
    blocks: int,
    repeats: int,
    alpha: float,
    seed: int,
    starts: Tensor | None = None,
    chains: Chains | None = None,
    jobs: int | None = None,
) -> TestResult:
    """Test the points block by block in several orders, and combine what the critics found.

    Arguments:
        points: The points and the model's scores.
        model: The model as the user gave it.
        critics: The critics, as `choose_critics` returns them.
        blocks: Into how many blocks the points are divided.
        repeats: How many orders.
        alpha: The level.
        seed: The orders of the points and all that is random in the critics.
        starts: Points from which modes of the model are searched, too.
        chains: How the points are arranged in chains, where they are draws of them.
        jobs: How many orders are gone through at once.
    """
    draws = [
        partial(Order.draw, points, model, blocks, next_seed(seed, number), starts, chains) for number in range(repeats)
    ]
    first = draws[0]()
    # An order that is there already is not drawn again, unless it would have to travel.
    orders = [lambda: first, *draws[1:]] if jobs is None or points.is_afar else draws
    # Where the points are elsewhere, so is the work on each order.
    run = _one_by_one if points.is_afar else partial(run_jobs, jobs=jobs)
    # Critics in closed form go first: where they have rejected beyond doubt nobody else need run.
    closed = [critic for critic in critics if is_closed_form(critic)]
    trained = [critic for critic in critics if not is_closed_form(critic)]
    pairs = _pairs_of(points, closed, seed, chains) if repeats > 1 else ()
    runs = [_Runs.through(orders, closed or trained, run)]
    if not runs[0].critics:
        raise InputError("critics", "the model has one mode as far as can be seen, so 'modes' has nothing to test")
    pvalues = runs[0].pvalues
    members = [(p, 1 / repeats) for p in pvalues] + [(pair.pvalue, PAIR_WEIGHTS[pair.name]) for pair in pairs]
    notes = [_order_note(pvalues, "the critics in closed form" if closed else "the critics", chains)]
    if closed and trained:
        # With p-values of 1 for those that did not run this is at least what it would be with theirs. A critic that may
        # turn out to have nothing to test has no share in it.
        without = [*members, (1.0, _TRAINED_WEIGHT * sum(not may_be_absent(critic) for critic in trained))]
        if _joined(without) < _BEYOND_DOUBT:
            left = ", ".join(map(critic_name, trained))
            notes.append(f"the critics in closed form reject beyond doubt, so others were not run: {left}")
            members = without
        else:
            runs.append(_Runs.through([lambda: first], trained, _one_by_one))
            members += [(p, _TRAINED_WEIGHT * len(runs[1].critics)) for p in runs[1].pvalues]
    if chains is not None:
        effective = float(np.median(np.concatenate([one.effective for run in runs for one in run.found])))
        notes.insert(
            0, f"{chains}, effective {_rounded(effective)} for the Stein values; batches of {chains.batch} draws"
        )
    if not callable(getattr(model, "log_prob", None)):
        notes.append(MODES_NOTE)
    learners = [learner for run in runs for learner in run.learners]
    modes = next((table for learner in learners if (table := learner.mode_weights(alpha)) is not None), None)
    results = [result for run in runs if run.critics for result in run.results(first.sizes)]
    ways = [(critic, run.passages(draws, i)) for run in runs for i, critic in enumerate(run.critics)]

    def explain(worst: int, position: int) -> Explanation:
        if points.is_afar:
            raise InputError(
                "explain", "the points stayed on the cluster; test some of them in memory and explain that"
            )
        critic, passages = ways[position]
        batch = 1 if chains is None else chains.batch
        return explain_orders(points, passages, critic, results[position].z, worst, batch)

    return TestResult(
        soft_maximum(np.array([result.z for result in results])),
        _joined(members),
        alpha,
        # Chains are divided into whole stretches of time, maybe more of them or fewer than were asked for.
        f"Learned Stein test, {len(first.parts)} prequential blocks" + (f", {repeats} orders" if repeats > 1 else ""),
        len(points),
        points.dim,
        tuple(results),
        () if modes is None else modes.findings(),
        tuple(notes),
        modes,
        pairs,
        Recipe(explain, tuple(learner.name for learner in learners if not isinstance(learner, Learner))),
    )


def _pairs_of(
    points: ScoredPoints, critics: list[CriticChoice], seed: int, chains: Chains | None
) -> tuple[PairResult, ...]:
    names = [name for name in PAIR_CRITICS if name in critics]
    return pair_tests(points, names, seed, chains) if names and len(points) <= MOST_POINTS else ()


def _rounded(count: float) -> str:
    """A number of draws with three digits."""
    return f"{count:.0f}" if count < 1000 else f"{round(count, 2 - math.floor(math.log10(count))):.0f}"


def _joined(members: Sequence[tuple[float, float]]) -> float:
    pvalues, weights = zip(*members, strict=True)
    return pvalues[0] if len(pvalues) == 1 else cauchy_pvalue(pvalues, weights)


def _order_note(pvalues: list[float], who: str, chains: Chains | None) -> str:
    if len(pvalues) == 1:
        return ORDER_NOTE
    least, most = min(pvalues), max(pvalues)
    spread = f"from {least:.2g} to {most:.2g}" if least > 0 else f"up to {most:.2g}" if most > 0 else "below 1e-300"
    what = "the points" if chains is None else "stretches of time"
    return f"{who} had p-values {spread} in {len(pvalues)} random orders of {what}"
