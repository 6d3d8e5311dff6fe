"""Functions of single coordinates on their own coordinate, for an estimate.

One small ridge solve for each coordinate, be it one of the metric, of the user or along another axis.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator

import torch
from jaxtyping import Float
from torch import Tensor

from steinscope.errors import InputError
from steinscope.maps.angles import FREQUENCIES, multiple_angles
from steinscope.metric import Metric
from steinscope.portfolio.learner import Learner
from steinscope.shapes import FlatPoints, PerPoint

__all__ = ["MarginalLearner", "OriginalLearner", "RotatedLearner", "or_one"]

_QUANTILE_ROWS = 5000
_LEAST_WIDTH = 1e-6


class MarginalLearner(Learner):
    r"""Functions of each coordinate on that coordinate, $f_j(x) = \sum_m w_{jm} \varphi_m(x_j)$, for an estimate.

    One small ridge solve for each coordinate. The functions are those of `AdditiveLearner` and steps at quantiles of
    the coordinate.
    """

    name = "additive"
    knots = 12
    ridges = (1.0, 0.3, 0.1, 0.03, 0.01, 0.003, 0.001)
    # The squared norm in the metric of a critic that is 1 in one coordinate and 0 in the others.
    price: Float[Tensor, " d"] | None = None

    def begin(self, x: FlatPoints, score: FlatPoints) -> None:
        ordered = x[:_QUANTILE_ROWS].T.contiguous().sort(1).values
        ranks = (
            torch.linspace(0.005, 0.995, self.knots, dtype=torch.float32, device=x.device)
            .mul(ordered.shape[1] - 1)
            .round()
            .long()
        )
        # Knots of each coordinate (K, d) at quantiles, and the width of the steps.
        self.places = ordered[:, ranks].T.contiguous()
        self.rate = 2 * self.knots / or_one(self.places[-1] - self.places[0])
        self.lowest, self.highest = x.amin(0), x.amax(0)
        size, d = 10 + self.knots, x.shape[1]
        self.count, self.dtype = 0, x.dtype
        self.gram = torch.zeros(d, size, size, dtype=torch.float64, device=x.device)
        self.cross = torch.zeros(d, size, dtype=torch.float64, device=x.device)

    def _planes(self, x: FlatPoints) -> Iterator[tuple[Tensor, Tensor]]:
        """Each function of all coordinates, and its derivative, one after the other."""
        # Beyond all points that were seen the functions stay what they were at the last of them.
        u = torch.clamp(x, self.lowest, self.highest)
        is_inside = (u == x).to(x.dtype)
        yield torch.ones_like(u), torch.zeros_like(u)
        yield u, is_inside
        for frequency, (sine, cosine) in zip(FREQUENCIES, multiple_angles(u), strict=True):
            yield sine, frequency * cosine * is_inside
            yield cosine, -frequency * sine * is_inside
        for place in self.places:
            step = torch.sigmoid((u - place) * self.rate)
            yield step, (step - step.square()) * (self.rate * is_inside)

    def _functions(self, x: FlatPoints) -> tuple[Float[Tensor, "k n d"], Float[Tensor, "k n d"]]:
        """All functions, and their derivatives."""
        functions, slopes = zip(*self._planes(x), strict=True)
        return torch.stack(functions), torch.stack(slopes)

    def observe(self, x: FlatPoints, score: FlatPoints) -> None:
        functions, slopes = self._functions(x)
        by_coordinate = functions.permute(2, 0, 1).contiguous()
        self.gram += by_coordinate @ by_coordinate.transpose(1, 2)
        self.cross += (by_coordinate @ score.T[:, :, None])[:, :, 0] + slopes.sum(1).T
        self.count += len(x)

    def refit(self) -> None:
        for _ in self._solve(0.5, (1.0,)):
            pass

    def path(self, l2: float) -> Iterator[None]:
        return self._solve(l2, self.ridges)

    def _solve(self, l2: float, ridges: tuple[float, ...]) -> Iterator[None]:
        eigenvalues, vectors = torch.linalg.eigh(self.gram / self.count)
        cross = self.cross / self.count
        if self.price is not None:
            cross /= self.price[:, None]
        rotated = torch.linalg.vecdot(vectors, cross[:, :, None], dim=1) / (2 * l2)
        for ridge in ridges:
            solved = (vectors @ (rotated / (eigenvalues.clamp_min(0.0) + ridge))[:, :, None])[:, :, 0]
            self.weights = solved.T.to(self.dtype).contiguous()
            yield

    def field(self, x: FlatPoints) -> tuple[FlatPoints, FlatPoints]:
        f, slopes = torch.zeros_like(x), torch.zeros_like(x)
        for weight, (function, slope) in zip(self.weights, self._planes(x), strict=True):
            f, slopes = torch.addcmul(f, function, weight), torch.addcmul(slopes, slope, weight)
        return f, slopes

    def looking_at(self, x: FlatPoints) -> Callable[[], tuple[FlatPoints, PerPoint]]:
        functions, slopes = self._functions(x)

        def look() -> tuple[FlatPoints, PerPoint]:
            weights = self.weights[:, None]
            return (functions * weights).sum(0), (slopes * weights).sum((0, 2))

        return look


class _AlongLearner(MarginalLearner):
    """The same functions of other coordinates u = Bx, where x = Au."""

    @abstractmethod
    def _axes(self, x: FlatPoints) -> tuple[Float[Tensor, "d d"], Float[Tensor, "d d"]]:
        """The matrices B and A, for points like these."""

    def begin(self, x: FlatPoints, score: FlatPoints) -> None:
        self.to_new, self.to_old = self._axes(x)
        super().begin(x @ self.to_new.T, score @ self.to_old)

    def observe(self, x: FlatPoints, score: FlatPoints) -> None:
        super().observe(x @ self.to_new.T, score @ self.to_old)

    def field(self, x: FlatPoints) -> tuple[FlatPoints, FlatPoints]:
        f, slopes = super().field(x @ self.to_new.T)
        return f @ self.to_old.T, slopes @ (self.to_new * self.to_old.T)

    def value_and_divergence(self, x: FlatPoints) -> tuple[FlatPoints, PerPoint]:
        f, slopes = super().field(x @ self.to_new.T)
        return f @ self.to_old.T, slopes.sum(1)

    def looking_at(self, x: FlatPoints) -> Callable[[], tuple[FlatPoints, PerPoint]]:
        moved = super().looking_at(x @ self.to_new.T)

        def look() -> tuple[FlatPoints, PerPoint]:
            f, divergence = moved()
            return f @ self.to_old.T, divergence

        return look


class RotatedLearner(_AlongLearner):
    """The same functions of the coordinates along other orthogonal axes.

    Arguments:
        is_independent: Whether the principal axes of the points are turned until the projections on them are as far
            from normal as they can be.
    """

    # Turning takes a product of n × d × d in each of some twenty rounds, and is not tried beyond.
    most_coordinates = 200

    def __init__(self, is_independent: bool = False) -> None:
        self.is_independent = is_independent

    def _axes(self, x: FlatPoints) -> tuple[Tensor, Tensor]:
        axes = torch.linalg.eigh(torch.atleast_2d(torch.cov(x.T)))[1].T.contiguous()
        if self.is_independent:
            axes = independent_directions(x - x.mean(0), axes)
        return axes, axes.T


class OriginalLearner(_AlongLearner):
    """The same functions of the user's coordinates, where those of the metric are mixtures of them.

    A wrong marginal is a matter of one coordinate there, and of all of them in the metric.

    Arguments:
        metric: The coordinates that points will be in.
    """

    def __init__(self, metric: Metric) -> None:
        self.metric = metric

    def _axes(self, x: FlatPoints) -> tuple[Tensor, Tensor]:
        root, inverse = self.metric.root, self.metric.inverse_root
        if root is None or inverse is None:
            raise InputError("metric", "expected coordinates that are mixtures of others")
        spread = root.square().sum(1).sqrt()
        # A long column of A makes a function of that coordinate dear in the metric.
        self.price = (inverse * spread).square().sum(0).to(x)
        return (root / spread[:, None]).to(x), (inverse * spread).to(x)


def independent_directions(x: FlatPoints, axes: Float[Tensor, "d d"], most_rounds: int = 50) -> Float[Tensor, "d d"]:
    r"""Orthogonal directions on which projections are far from normal, by the fixed-point iteration of FastICA.

    Arguments:
        x: Points with mean zero.
        axes: The directions to start from, as rows.
        most_rounds: How many rounds at most.
    """
    for _ in range(most_rounds):
        projections = x @ axes.T
        spread = projections.std(0).clamp_min(1e-6)
        u = projections / spread
        # The derivative of -exp(-u²/2), which few large projections cannot dominate.
        bell = torch.exp(-0.5 * u.square())
        slopes = ((1 - u.square()) * bell).mean(0)
        update = (u * bell).T @ x / len(x) - (slopes * spread)[:, None] * axes
        left, _, right = torch.linalg.svd(update, full_matrices=False)
        turned = left @ right
        is_done = bool(((turned * axes).sum(1).abs() > 1 - 1e-5).all())
        axes = turned
        if is_done:
            break
    return axes


def or_one(widths: Float[Tensor, " d"]) -> Float[Tensor, " d"]:
    """Widths of coordinates of unit scale; 1 where a coordinate hardly varies, such as a constant."""
    return torch.where(widths > _LEAST_WIDTH, widths, torch.ones_like(widths))
