"""Fit a stack of critics to some points and look at others: one fold of an estimate."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import torch
from torch import Tensor

from steinscope.critics.fitting import History
from steinscope.metric import Metric
from steinscope.points import ScoredPoints, joined
from steinscope.portfolio.choice import CriticChoice, critic_name, estimate_learners
from steinscope.portfolio.learner import Context, Learner
from steinscope.portfolio.stack import Member, Stack, batch_rows, fit_member, seen_by, stack_weights
from steinscope.portfolio.trained import TrainedLearner
from steinscope.settings import FitSettings

__all__ = ["FoldFit", "fit_fold"]

# More training points than these hardly change a critic in closed form, or a network of this size.
_MOST_TRAINING = 50_000
# What each critic finds alone is an addition to the estimate: so many points of a fold are enough for it.
_ALONE_POINTS = 20_000
_FEW_POINTS = 2000
_TURNS = 4


@dataclass(frozen=True)
class FoldFit:
    """What a fold found.

    Arguments:
        learners: The critics of the stack.
        weights: Their weights.
        values: The value 2(s - λ‖f‖²) of each held-out point.
        steins: Its Stein value.
        alone: The values that each critic would have alone, by name, of the first held-out points.
        parts: What each critic adds to the sum of the Stein values, by name.
        history: How the first trained critic was fitted.
    """

    learners: list[Learner]
    weights: list[float]
    values: np.ndarray
    steins: np.ndarray
    alone: dict[str, np.ndarray] = field(repr=False)
    parts: dict[str, float]
    history: History | None

    def critic(self, metric: Metric) -> Stack:
        """The stack as one critic of x."""
        return Stack(self.learners, self.weights, metric)


@torch.no_grad()
def fit_fold(
    training: ScoredPoints,
    validation: ScoredPoints,
    test: ScoredPoints,
    critics: Sequence[CriticChoice],
    context: Context,
    l2: float,
    settings: FitSettings,
    *,
    batch: int = 1,
    progress: bool | None = None,
    title: str = "critics",
) -> FoldFit:
    """Fit critics to training points, weigh them on validation points, and look at test points.

    Critics that are solved come first. What is trained is trained on what they leave over: with the sum F of the others
    the penalised mean of F + g is, up to what does not depend on g, that of g with the scores s - 2λF.

    Arguments:
        training: The points that critics learn from.
        validation: The points that weigh them.
        test: The points that are held out.
        critics: The critics.
        context: What learners may know.
        l2: The penalty λ.
        settings: How critics are trained that are not solved.
        batch: How many test points in a row are a batch of dependent draws; 1 for independent points.
        progress: As in `discrepancy`.
        title: What the progress bar says.
    """
    training = training.subset(torch.arange(min(len(training), _MOST_TRAINING)))
    parts = _inner_parts(training, validation)
    solved: list[Member] = []
    to_train: list[tuple[str, TrainedLearner]] = []
    for critic in critics:
        for number, learner in enumerate(estimate_learners(critic, context)):
            if isinstance(learner, TrainedLearner) and not learner.is_solvable:
                to_train.append((critic_name(critic), learner))
            else:
                make = partial(_nth_learner, critic, context, number)
                solved.append(fit_member(critic_name(critic), make, parts, l2))
    members = [member for member in solved if member.has_found(l2)]
    weights = stack_weights(members, l2)
    members, weights = _or_best_guess(members, weights, solved, l2)
    history, everyone, n = None, list(solved), len(validation)
    for name, learner in to_train:
        left_over = _left_over(training, members, weights, l2, slice(n, None))
        watched = _left_over(validation, members, weights, l2, slice(0, n))
        own = learner.fit(left_over, watched, l2, settings, progress=progress, title=title)
        history = history or own
        member = Member(name, learner, *seen_by(learner, validation))
        everyone.append(member)
        if _gain(learner, watched, l2) > 0:
            members.append(member)
            # A trained critic has seen the training points, so that the validation points alone weigh it.
            weights = stack_weights([one.first(n) for one in members], l2)
    members, weights = _or_best_guess(members, weights, everyone, l2)
    return _look(test, members, weights, everyone, l2, history, batch)


def _or_best_guess(
    members: list[Member], weights: Tensor, everyone: Sequence[Member], l2: float
) -> tuple[list[Member], Tensor]:
    """The stack; where nothing was found, the best guess, which is still a critic, whose value has an error."""
    guesses = [member for member in everyone if member.f.any()]
    if weights.any() or not guesses:
        return members, weights
    return [max(guesses, key=lambda member: member.quality(l2))], torch.ones(1, dtype=torch.float64)


def _nth_learner(critic: CriticChoice, context: Context, number: int) -> Learner:
    return estimate_learners(critic, context)[number]


def _inner_parts(training: ScoredPoints, validation: ScoredPoints) -> list[tuple[ScoredPoints, ScoredPoints]]:
    """Points to learn from and points to look at.

    Few points are all looked at, in turns, by critics that have not seen them: a fifth of them would hardly tell one
    critic from another. The validation points come first.
    """
    if len(training) + len(validation) > _FEW_POINTS:
        return [(training, validation)]
    chunks = [validation, *(training.subset(rows) for rows in torch.arange(len(training)).tensor_split(_TURNS - 1))]
    return [(joined([*chunks[:i], *chunks[i + 1 :]]), chunk) for i, chunk in enumerate(chunks)]


def _left_over(
    points: ScoredPoints, members: Sequence[Member], weights: Tensor, l2: float, rows: slice
) -> ScoredPoints:
    """Points with the scores that are left when the stack is taken out: s - 2λF.

    Arguments:
        points: The points.
        members: The critics.
        weights: Their weights.
        l2: The penalty λ.
        rows: Which rows of what the members have seen these points are. A member that has not seen them looks at them.
    """
    x, score = points.take(slice(None))
    total = torch.zeros_like(x)
    for member, weight in zip(members, weights.tolist(), strict=True):
        if weight > 0:
            known = member.f[rows]
            total += weight * (known if len(known) == len(x) else seen_by(member.learner, points)[0])
    return ScoredPoints(x, score - 2 * l2 * total, points.dtype, points.device)


def _gain(learner: Learner, watched: ScoredPoints, l2: float) -> float:
    """What a critic adds on the validation points."""
    f, values = seen_by(learner, watched)
    return float((values.double() - l2 * f.double().square().sum(1)).mean())


def _look(
    test: ScoredPoints,
    members: Sequence[Member],
    weights: Tensor,
    everyone: Sequence[Member],
    l2: float,
    history: History | None,
    batch: int,
) -> FoldFit:
    """Look at the held-out points, some at a time: at the stack, and at each critic alone."""
    # Standard errors are made of whole batches of draws, and of two of them at least.
    most_alone = max(_ALONE_POINTS, 2 * batch)
    groups = {name: [member for member in everyone if member.group == name] for name in _names(everyone)}
    own = {name: [float(w) for w in stack_weights(group, l2)] for name, group in groups.items()}
    in_stack = {id(member.learner): weight for member, weight in zip(members, weights.tolist(), strict=True)}
    values, steins, count = [], [], 0
    alone: dict[str, list[Tensor]] = {name: [] for name in groups}
    parts = dict.fromkeys(groups, 0.0)
    for x, score in test.batches(batch_rows(test.dim)):
        total, stein = torch.zeros_like(x), torch.zeros(len(x), dtype=torch.float64, device=x.device)
        for name, group in groups.items():
            field_alone, stein_alone = torch.zeros_like(x), torch.zeros_like(stein)
            for member, own_weight in zip(group, own[name], strict=True):
                weight = in_stack.get(id(member.learner), 0.0)
                if weight == 0.0 and (own_weight == 0.0 or count >= most_alone):
                    continue
                f, divergence = member.learner.value_and_divergence(x)
                seen = (torch.linalg.vecdot(score, f) + divergence).double()
                field_alone += own_weight * f
                stein_alone += own_weight * seen
                total += weight * f
                stein += weight * seen
                parts[name] += weight * float(seen.sum())
            if count < most_alone:
                alone[name].append(_pointwise(stein_alone, field_alone, l2))
        values.append(_pointwise(stein, total, l2))
        steins.append(stein)
        count += len(x)
    seen_alone = {name: torch.cat(values_).cpu().numpy() for name, values_ in alone.items()}
    return FoldFit(
        learners=[member.learner for member in members],
        weights=weights.tolist(),
        values=torch.cat(values).cpu().numpy(),
        steins=torch.cat(steins).cpu().numpy(),
        alone={name: found[: len(found) // batch * batch] for name, found in seen_alone.items()},
        parts=parts,
        history=history,
    )


def _names(members: Sequence[Member]) -> list[str]:
    return list(dict.fromkeys(member.group for member in members))


def _pointwise(stein: Tensor, f: Tensor, l2: float) -> Tensor:
    return 2 * (stein - l2 * f.double().square().sum(1))
