r"""Critics stacked in closed form.

With critics $f_c$, their mean products $M_{cd} = E f_c \cdot f_d$ and mean Stein values $m_c = E s_{f_c}$ on validation
points, the sum $\sum_c w_c f_c$ has the largest penalised mean for $w = (2\lambda M)^{-1} m$. The weights are not
negative. A ridge that the validation points choose draws them towards the best critic alone, so that a stack is not
much worse than that one where there are few points.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from steinscope.critics.base import Critic
from steinscope.metric import Metric
from steinscope.points import ScoredPoints
from steinscope.portfolio.learner import Learner
from steinscope.shapes import FlatPoints, PerPoint, Points

__all__ = ["Member", "Stack", "batch_rows", "fit_member", "seen_by", "stack_weights"]

_RIDGES = (100.0, 10.0, 1.0, 0.1, 0.01)
_BATCH_NUMBERS = 2**17
_BEGIN_ROWS = 8192
# A critic must be better than one that is more strongly regularised by so many standard errors.
_SURE = 1.5


def batch_rows(dim: int) -> int:
    """How many points are looked at at once: so many that what critics make of them stays near the processor."""
    return max(256, min(8192, _BATCH_NUMBERS // dim))


@dataclass(frozen=True)
class Member:
    """A critic of a stack.

    Arguments:
        group: The critic's name in the registry; several members may share it.
        learner: The critic.
        f: Its values at the validation points.
        values: Its Stein values there.
    """

    group: str
    learner: Learner
    f: FlatPoints
    values: PerPoint

    def first(self, n: int) -> Member:
        """The same critic at the first n of the validation points."""
        return Member(self.group, self.learner, self.f[:n], self.values[:n])

    def quality(self, l2: float) -> float:
        """The penalised mean Stein value of the validation points."""
        return float(_penalised(self.f, self.values, l2).mean())

    def has_found(self, l2: float) -> bool:
        """Whether it is good as it is, or would be if it were shorter."""
        values = self.values.double()
        return self.quality(l2) > 0 or float(values.mean()) > 2 * float(values.std()) / math.sqrt(len(values))


def seen_by(learner: Learner, points: ScoredPoints) -> tuple[FlatPoints, PerPoint]:
    """A critic's values and Stein values at points."""
    parts = []
    for x, score in points.batches(batch_rows(points.dim)):
        f, divergence = learner.value_and_divergence(x)
        parts.append((f, torch.linalg.vecdot(score, f) + divergence))
    fields, values = zip(*parts, strict=True)
    return torch.cat(fields), torch.cat(values)


def fit_member(
    group: str, make: Callable[[], Learner], parts: Sequence[tuple[ScoredPoints, ScoredPoints]], l2: float
) -> Member:
    """Fit a critic. Points that it has not seen choose how strongly it is regularised.

    Arguments:
        group: The critic's name.
        make: Makes a fresh learner.
        parts: Pairs of points to learn from and points to look at. Of several pairs every point is looked at once, and
            the critic learns from all points in the end.
        l2: The penalty λ.
    """
    # For each critic of the path: what the points looked at say, pair by pair.
    seen: list[list[tuple[Tensor, Tensor]]] = []
    snapshots: list[Learner] = []
    for training, validation in parts:
        learner = _taught(make(), [training])
        looks = [(learner.looking_at(x), score) for x, score in validation.batches(batch_rows(validation.dim))]
        for position, _ in enumerate(learner.path(l2)):
            if len(seen) <= position:
                seen.append([])
            for look, score in looks:
                f, divergence = look()
                seen[position].append((f, torch.linalg.vecdot(score, f) + divergence))
            if len(parts) == 1:
                snapshots.append(learner.snapshot())
    candidates = [(torch.cat([f for f, _ in rows]), torch.cat([values for _, values in rows])) for rows in seen]
    best = 0
    for position in range(1, len(candidates)):
        # The path leads from strong to weak regularisation, and a weaker one must be better beyond chance.
        if _is_better(_penalised(*candidates[position], l2) - _penalised(*candidates[best], l2)):
            best = position
    if len(parts) == 1:
        return Member(group, snapshots[best], *candidates[best])
    # The two sides of a pair are all points.
    learner = _taught(make(), parts[0])
    for position, _ in enumerate(learner.path(l2)):
        if position == best:
            break
    return Member(group, learner.snapshot(), *candidates[best])


def _taught(learner: Learner, sources: Sequence[ScoredPoints]) -> Learner:
    """A learner that has seen points. Scales and directions come from more of them than one batch holds."""
    learner.begin(*sources[0].take(slice(_BEGIN_ROWS)))
    for points in sources:
        for x, score in points.batches(batch_rows(points.dim)):
            learner.observe(x, score)
    return learner


def _penalised(f: FlatPoints, values: PerPoint, l2: float) -> PerPoint:
    return values.double() - l2 * f.double().square().sum(1)


def _is_better(differences: PerPoint) -> bool:
    return float(differences.mean()) > _SURE * float(differences.std()) / math.sqrt(len(differences))


def stack_weights(members: Sequence[Member], l2: float) -> Float[Tensor, " k"]:
    """The weights of critics, from what the validation points say. Halves of them choose the ridge for each other."""
    if not members:
        return torch.zeros(0, dtype=torch.float64)
    every, *halves = (_Moments.of(members, rows) for rows in (slice(None), slice(0, None, 2), slice(1, None, 2)))

    def quality(ridge: float) -> float:
        return sum(unseen.quality(_solve(seen, l2, ridge), l2) for seen, unseen in (halves, halves[::-1]))

    return _solve(every, l2, max(_RIDGES, key=quality))


@dataclass(frozen=True)
class _Moments:
    """What some validation points say about critics.

    Arguments:
        products: Their mean products.
        means: Their mean Stein values.
        stderr: The standard errors of these means.
    """

    products: Float[Tensor, "k k"]
    means: Float[Tensor, " k"]
    stderr: Float[Tensor, " k"]

    @classmethod
    def of(cls, members: Sequence[Member], rows: slice) -> _Moments:
        fields = [member.f[rows].double() for member in members]
        values = torch.stack([member.values[rows].double() for member in members])
        products = torch.stack([torch.stack([(a * b).sum(1).mean() for b in fields]) for a in fields])
        spread = values.std(1) if values.shape[1] > 1 else torch.zeros_like(values[:, 0])
        return cls(products, values.mean(1), spread / math.sqrt(values.shape[1]))

    def sure_means(self) -> Float[Tensor, " k"]:
        """The means, shrunk by their noise: what is no larger than its standard error is nothing.

        The Stein values of a narrow critic are far noisier than it is long, so that its best length is mostly noise.
        """
        return self.means * (1 - (self.stderr / self.means.abs().clamp_min(1e-300)).square()).clamp_min(0.0)

    def quality(self, weights: Tensor, l2: float) -> float:
        """The penalised mean Stein value of a weighted sum."""
        return float(weights @ self.means - l2 * weights @ self.products @ weights)


def _lengths(products: Tensor, means: Tensor, l2: float) -> Tensor:
    """The best weight of each critic alone, not below a hundredth and not above a hundred."""
    return (means / (2 * l2 * products.diagonal()).clamp_min(1e-300)).clamp(0.01, 100.0)


def _solve(seen: _Moments, l2: float, ridge: float) -> Tensor:
    """The best weights that are not negative, drawn by the ridge towards the best critic alone.

    Weights that would be negative are set to zero one after the other.
    """
    products, means = seen.products, seen.sure_means()
    lengths = _lengths(products, means, l2)
    products, means = products * torch.outer(lengths, lengths), means * lengths
    sizes = products.diagonal()
    alone = torch.zeros_like(means)
    alone[(means - l2 * sizes).argmax()] = 1.0
    # A critic that is nearly zero at all validation points must not be blown up: that is what the last term is for.
    pull = 2 * l2 * (ridge * sizes + 1e-3 * sizes.max() + 1e-300)
    regular, target = 2 * l2 * products + torch.diag(pull), means + pull * alone
    left = torch.arange(len(means))
    while len(left):
        weights = torch.linalg.solve(regular[left][:, left], target[left])
        if float(weights.min()) >= 0:
            # What hardly counts is left out, because looking at points takes time.
            weights = torch.where(weights < 1e-3 * weights.max(), 0.0, weights)
            return lengths * torch.zeros_like(means).index_copy_(0, left, weights)
        left = left[torch.arange(len(left)) != int(weights.argmin())]
    return torch.zeros_like(means)


class Stack(Critic):
    """A weighted sum of critics, as one critic of x.

    Arguments:
        learners: The critics, in the coordinates of the metric.
        weights: The weight of each of them.
        metric: The coordinates.
    """

    def __init__(self, learners: Sequence[Learner], weights: Sequence[float], metric: Metric) -> None:
        super().__init__()
        self.learners, self.weights, self.metric = list(learners), list(weights), metric

    def forward(self, x: Points) -> Points:
        """The value f(x) at each point."""
        return self.value_and_divergence(x)[0]

    def value_and_divergence(self, x: Points, generator: torch.Generator | None = None) -> tuple[Points, PerPoint]:
        """f(x) and ∇·f(x) at each point."""
        z = self.metric.points(x)
        total, divergence = torch.zeros_like(z), z.new_zeros(len(z))
        for learner, weight in zip(self.learners, self.weights, strict=True):
            f, div = learner.value_and_divergence(z)
            total, divergence = total + weight * f, divergence + weight * div
        return self.metric.field_in_x(total).view(x.shape), divergence

    def value_and_diagonal(self, x: Points) -> tuple[Points, Points]:
        """f(x) and ∂f_i/∂x_i for each coordinate."""
        if self.metric.root is not None:
            return super().value_and_diagonal(x)
        z = self.metric.points(x)
        total, slopes = torch.zeros_like(z), torch.zeros_like(z)
        for learner, weight in zip(self.learners, self.weights, strict=True):
            f, diagonal = learner.field(z)
            total, slopes = total + weight * f, slopes + weight * diagonal
        return self.metric.field_in_x(total).view(x.shape), slopes.view(x.shape)
