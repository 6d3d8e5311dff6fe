r"""Critics stacked in closed form.

With critics $f_c$, their mean products $M_{cd} = E f_c \cdot f_d$ and mean Stein values $m_c = E s_{f_c}$ on validation
points, the sum $\sum_c w_c f_c$ has the largest penalised mean for $w = (2\lambda M)^{-1} m$. The weights are not
negative, and a ridge that the validation points choose keeps critics that are alike from playing against each other.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
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

_RIDGES = (0.01, 0.1, 1.0)
_BATCH_NUMBERS = 2**20
# A critic must be better than one that is more strongly regularised by so many standard errors.
_SURE = 1.0


def batch_rows(dim: int) -> int:
    """How many points are looked at at once: about a million numbers, and not more than 8192 points."""
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

    def penalised(self, l2: float) -> PerPoint:
        """The penalised Stein value of each validation point."""
        return self.values.double() - l2 * self.f.double().square().sum(1)

    def quality(self, l2: float) -> float:
        """Their mean."""
        return float(self.penalised(l2).mean())


def seen_by(learner: Learner, points: ScoredPoints) -> tuple[FlatPoints, PerPoint]:
    """A critic's values and Stein values at points."""
    parts = []
    for x, score in points.batches(batch_rows(points.dim)):
        f, divergence = learner.value_and_divergence(x)
        parts.append((f, torch.linalg.vecdot(score, f) + divergence))
    fields, values = zip(*parts, strict=True)
    return torch.cat(fields), torch.cat(values)


def fit_member(group: str, learner: Learner, training: ScoredPoints, validation: ScoredPoints, l2: float) -> Member:
    """Show the training points to a learner, and keep the critic of its path that the validation points like best."""
    for number, (x, score) in enumerate(training.batches(batch_rows(training.dim))):
        if number == 0:
            learner.begin(x, score)
        learner.observe(x, score)
    best: Member | None = None
    for _ in learner.path(l2):
        member = Member(group, learner.snapshot(), *seen_by(learner, validation))
        # The path leads from strong to weak regularisation, and a weaker one must be better beyond chance.
        if best is None or _is_better(member.penalised(l2) - best.penalised(l2)):
            best = member
    assert best is not None
    return best


def _is_better(differences: PerPoint) -> bool:
    return float(differences.mean()) > _SURE * float(differences.std()) / math.sqrt(len(differences))


def stack_weights(members: Sequence[Member], l2: float) -> Float[Tensor, " k"]:
    """The weights of critics, from what the validation points say. Halves of them choose the ridge for each other."""
    if not members:
        return torch.zeros(0, dtype=torch.float64)
    products, means = zip(*(_moments(members, half) for half in (slice(0, None, 2), slice(1, None, 2))), strict=True)
    qualities = [
        sum(
            _quality(_solve(products[1 - half], means[1 - half], l2, ridge), products[half], means[half], l2)
            for half in (0, 1)
        )
        for ridge in _RIDGES
    ]
    ridge = _RIDGES[max(range(len(_RIDGES)), key=lambda position: qualities[position])]
    return _solve(*_moments(members, slice(None)), l2, ridge)


def _moments(members: Sequence[Member], rows: slice) -> tuple[Tensor, Tensor]:
    fields = [member.f[rows].double() for member in members]
    products = torch.stack([torch.stack([(a * b).sum(1).mean() for b in fields]) for a in fields])
    return products, torch.stack([member.values[rows].double().mean() for member in members])


def _solve(products: Tensor, means: Tensor, l2: float, ridge: float) -> Tensor:
    """The weights that are not negative: those that would be are set to zero one after the other."""
    sizes = products.diagonal()
    # A critic that is nearly zero at all validation points must not be blown up: that is what the last term is for.
    regular = 2 * l2 * (products + torch.diag(ridge * sizes + 1e-3 * sizes.max() + 1e-300))
    left = torch.arange(len(means))
    while len(left):
        weights = torch.linalg.solve(regular[left][:, left], means[left])
        if float(weights.min()) >= 0:
            return torch.zeros_like(means).index_copy_(0, left, weights)
        left = left[torch.arange(len(left)) != int(weights.argmin())]
    return torch.zeros_like(means)


def _quality(weights: Tensor, products: Tensor, means: Tensor, l2: float) -> float:
    return float(weights @ means - l2 * weights @ products @ weights)


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

    @torch.no_grad()
    def forward(self, x: Points) -> Points:
        """The value f(x) at each point."""
        return self.value_and_divergence(x)[0]

    @torch.no_grad()
    def value_and_divergence(self, x: Points, generator: torch.Generator | None = None) -> tuple[Points, PerPoint]:
        """f(x) and ∇·f(x) at each point."""
        z = self.metric.points(x)
        total, divergence = torch.zeros_like(z), z.new_zeros(len(z))
        for learner, weight in zip(self.learners, self.weights, strict=True):
            f, div = learner.value_and_divergence(z)
            total, divergence = total + weight * f, divergence + weight * div
        return self.metric.field_in_x(total).view(x.shape), divergence

    @torch.no_grad()
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
