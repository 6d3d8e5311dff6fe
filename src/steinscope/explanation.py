r"""Which coordinates and which points a misfit comes from.

The Stein value of a point is a sum over coordinates of $s_i f_i + \partial_i f_i$, and each term has mean zero where
the model is right. So the terms of points that the critic has not seen say which coordinates and which points speak
against the model.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, SupportsIndex

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from steinscope.critics.base import Critic
from steinscope.errors import InputError
from steinscope.frames import Names, coordinate_label
from steinscope.metric import Metric
from steinscope.points import ScoredPoints
from steinscope.support.checks import check_count, check_level
from steinscope.support.normal import normal_quantile
from steinscope.unconstrained import Unconstrained

__all__ = ["Explanation", "Recipe", "Tally", "WorstPoint", "contributions", "explain_held_out"]

_CONTRIBUTION_ROWS = 1024
_SAMPLE_ROWS = 500

Field = Callable[[Tensor], tuple[Tensor, Tensor]]
"""The values of a critic at points (n, d), and the diagonal of its Jacobian."""

Penalty = Callable[[Tensor], Tensor]
"""What the penalty takes off, for each coordinate of each point, from the values of a critic."""


@dataclass(frozen=True)
class WorstPoint:
    """A point that contributes most to the evidence against the model.

    Arguments:
        index: Its row in x.
        contribution: What it adds to the total.
        x: Its coordinates.
        coordinates: What each of its coordinates adds.
    """

    index: int
    contribution: float
    x: np.ndarray = field(repr=False)
    coordinates: np.ndarray = field(repr=False)


@dataclass(frozen=True)
class Explanation:
    r"""What coordinates and points contribute to a total: the z-score of a critic, or a discrepancy.

    Every point is judged by a critic that has not seen it. Contributions of coordinates add up to the total, and so
    do those of points. Where the model is right each has mean zero.

    Arguments:
        critic: The critic.
        quantity: What the total is.
        total: The sum of all contributions.
        coordinates: What each coordinate contributes: the sum of its weighted terms $s_i f_i + \partial_i f_i$.
        stderr: The standard error of each of them.
        points: What each point contributes.
        index: Which row of x each of them is.
        worst: The points that contribute most, in descending order.
        sample: Some of the points, for figures.
        critic_at: The critic as a function from points (n, d) to vectors; that of a prequential test is made from all
            points.
        names: The names of the coordinates, if they have any.
    """

    critic: str
    quantity: str
    total: float
    coordinates: np.ndarray = field(repr=False)
    stderr: np.ndarray = field(repr=False)
    points: np.ndarray = field(repr=False)
    index: np.ndarray = field(repr=False)
    worst: tuple[WorstPoint, ...] = field(repr=False)
    sample: np.ndarray = field(repr=False)
    critic_at: Callable[[np.ndarray], np.ndarray] = field(repr=False, compare=False)
    names: Names = field(default=None, repr=False)

    def label(self, coordinate: SupportsIndex) -> str:
        """What a coordinate is called: by its name, otherwise `x[3]`."""
        return coordinate_label(self.names, operator.index(coordinate))

    @property
    def order(self) -> np.ndarray:
        """The coordinates in the order of their contributions, the largest first."""
        return np.argsort(-self.coordinates, kind="stable")

    def intervals(self, level: float = 0.95) -> np.ndarray:
        """The two-sided confidence interval of each coordinate's contribution, as rows (low, high)."""
        half = normal_quantile(0.5 + check_level("level", level) / 2) * self.stderr
        return np.stack([self.coordinates - half, self.coordinates + half], 1)

    def to_dict(self) -> dict[str, Any]:
        """Numbers, strings and lists, ready for JSON. The contributions of single points are those of the worst."""
        return {
            "critic": self.critic,
            "quantity": self.quantity,
            "total": self.total,
            "names": None if self.names is None else list(self.names),
            "coordinates": self.coordinates.tolist(),
            "stderr": self.stderr.tolist(),
            "worst": [
                {"index": point.index, "contribution": point.contribution, "x": point.x.tolist()}
                for point in self.worst
            ],
        }

    def plot(self, ax: Any = None) -> Any:
        """Draw the contributions of the coordinates with 95% intervals; returns the matplotlib figure."""
        from steinscope.plots import plot_explanation

        return plot_explanation(self, ax)

    def __str__(self) -> str:
        width = max(12, *(2 + len(self.label(i)) for i in self.order[:5]))
        lines = [
            f"Contributions to the {self.quantity} {self.total:.4g} of the critic {self.critic}, "
            f"{len(self.points)} points",
            "",
            f"{'coordinate':<{width}}{'contribution':>12}  95% interval",
        ]
        intervals = self.intervals()
        for i in self.order[:5]:
            low, high = intervals[i]
            lines.append(f"{self.label(i):<{width}}{self.coordinates[i]:>12.4g}  {low:.4g} to {high:.4g}")
        lines += ["", f"{'point':<{width}}{'contribution':>12}  mostly by (the first point is row 0)"]
        for point in self.worst[:5]:
            i = int(point.coordinates.argmax())
            row = f"row {point.index}"
            lines.append(f"{row:<{width}}{point.contribution:>12.4g}  {self.label(i)} = {point.x[i]:.4g}")
        return "\n".join(lines)


def contributions(
    x: Float[Tensor, "n d"],
    score: Float[Tensor, "n d"],
    critic: Field,
    coordinates: Unconstrained | None = None,
    penalty: Penalty | None = None,
) -> np.ndarray:
    """s_i f_i + ∂_i f_i for each coordinate of each point as the user knows it, less the penalty."""
    parts = []
    with torch.no_grad():
        for rows, scores in zip(x.split(_CONTRIBUTION_ROWS), score.split(_CONTRIBUTION_ROWS), strict=True):
            f, slopes = critic(rows)
            terms = torch.addcmul(slopes, scores, f).double()
            terms = terms if penalty is None else terms - penalty(f)
            parts.append((terms if coordinates is None else coordinates.by_coordinate(terms)).cpu().numpy())
    return np.concatenate(parts)


class Tally:
    """Adds up contributions batch by batch. It keeps sums over points, one number for each point, and the worst points.

    Arguments:
        points: The points, for the number of their coordinates as the user knows them and what these are called.
        worst: How many of the worst points to keep.
        batch: How many points in a row are a batch of dependent draws; 1 for independent points. Points are then added
            in whole batches.
    """

    def __init__(self, points: ScoredPoints, worst: int, batch: int = 1) -> None:
        self.names, self.batch = points.names, batch
        self.count_worst = check_count("worst", worst, 0)
        self.dtype, self.device, self.coordinates = points.dtype, points.device, points.coordinates
        self.sums, self.squares = np.zeros(points.outer_dim), np.zeros(points.outer_dim)
        self.values: list[np.ndarray] = []
        self.index: list[np.ndarray] = []
        self.worst: list[WorstPoint] = []
        self.sample: list[np.ndarray] = []

    def add(
        self,
        index: Tensor,
        x: Float[Tensor, "n d"],
        score: Float[Tensor, "n d"],
        critic: Field,
        weight: float = 1.0,
        *,
        shown: Float[Tensor, "n outer"] | None = None,
        penalty: Penalty | None = None,
    ) -> None:
        """Add the contributions s_i f_i + ∂_i f_i of points, times a weight.

        Arguments:
            index: Which rows they are.
            x: The points, in the coordinates of the critic.
            score: The scores there.
            critic: The critic.
            weight: The weight.
            shown: The points as the user knows them; by default x.
            penalty: What to take off, for each coordinate of each point.
        """
        shown = x if shown is None else shown
        terms = weight * contributions(x, score, critic, self.coordinates, penalty)
        self.add_terms(index.cpu().numpy(), shown.detach().cpu().numpy(), terms)

    def add_terms(self, index: np.ndarray, x: np.ndarray, terms: np.ndarray) -> None:
        """Add what each coordinate of each point contributes.

        Arguments:
            index: Which rows they are.
            x: The points as the user knows them.
            terms: What the coordinates contribute, of the shape of x.
        """
        values = terms.sum(1)
        self.sums += terms.sum(0)
        self.squares += np.square(terms.reshape(-1, self.batch, terms.shape[1]).sum(1)).sum(0)
        self.values.append(values)
        self.index.append(index)
        if sum(map(len, self.sample)) < _SAMPLE_ROWS:
            self.sample.append(x[:_SAMPLE_ROWS].copy())
        largest = np.argsort(-values, kind="stable")[: self.count_worst]
        new = [WorstPoint(int(index[i]), float(values[i]), x[i].copy(), terms[i].copy()) for i in largest]
        self.worst = sorted([*self.worst, *new], key=lambda point: -point.contribution)[: self.count_worst]

    def finish(self, critic: str, quantity: str, scale: Callable[[np.ndarray], float], final: Field) -> Explanation:
        """The explanation, with everything divided by `scale` of the contributions of the points.

        Arguments:
            critic: The name of the critic.
            quantity: What the total is.
            scale: From what each point adds to what all of it is divided by.
            final: The critic to draw.
        """
        values = np.concatenate(self.values)
        divisor, n = scale(values) or 1.0, len(values) // self.batch
        dtype, device, coordinates = self.dtype, self.device, self.coordinates

        def as_function(x: np.ndarray) -> np.ndarray:
            with torch.no_grad():
                places = torch.as_tensor(x, dtype=dtype, device=device)
                if coordinates is None:
                    return final(places)[0].double().cpu().numpy()
                u = coordinates.points(places).reshape(len(x), -1)
                return coordinates.field(u, final(u)[0]).double().cpu().numpy()

        # The variance of a sum of n independent terms, from the terms; sums of batches are nearly independent.
        variance = np.maximum(self.squares - np.square(self.sums) / n, 0.0) * n / max(1, n - 1)
        return Explanation(
            critic,
            quantity,
            float(values.sum() / divisor),
            self.sums / divisor,
            np.sqrt(variance) / divisor,
            values / divisor,
            np.concatenate(self.index),
            tuple(
                WorstPoint(point.index, point.contribution / divisor, point.x, point.coordinates / divisor)
                for point in self.worst
            ),
            np.concatenate(self.sample)[:_SAMPLE_ROWS],
            as_function,
            self.names,
        )


def explain_held_out(
    points: ScoredPoints,
    parts: list[tuple[Tensor, Critic]],
    critic: str,
    worst: int,
    quantity: str,
    measure: tuple[float, Metric] | None = None,
    batch: int = 1,
) -> Explanation:
    """Explain a discrepancy over held-out points, or the z-score of a mean Stein value.

    Arguments:
        points: All points.
        parts: Held-out rows, and the critic that has not seen them.
        critic: The name of the critic.
        worst: How many of the worst points to keep.
        quantity: What the total is.
        measure: For a discrepancy, the mean of 2(s - λ‖f‖²), the penalty λ and the metric; for a z-score None.
        batch: How many of the held-out rows in a row are a batch of dependent draws; 1 for independent points.
    """
    tally = Tally(points, worst, batch)
    penalty, weight = (None, 1.0) if measure is None else (_penalty(*measure), 2.0)
    for index, part_critic in parts:
        for rows, x, score in _flat_batches(points, index, batch):
            field = _shaped(part_critic, points.x.shape[1:])
            tally.add(rows, x, score, field, weight, shown=points.original(x), penalty=penalty)

    def scale(values: np.ndarray) -> float:
        return math.sqrt(len(values)) * float(values.std(ddof=1)) if measure is None else float(len(values))

    fields = [_shaped(part_critic, points.x.shape[1:]) for _, part_critic in parts]

    def final(x: Tensor) -> tuple[Tensor, Tensor]:
        pairs = [one(x) for one in fields]
        return torch.stack([f for f, _ in pairs]).mean(0), torch.stack([slopes for _, slopes in pairs]).mean(0)

    return tally.finish(critic, quantity, scale, final)


def _penalty(l2: float, metric: Metric) -> Penalty:
    """λ f_i (LᵀL f)_i for each coordinate, which add up to λ‖L f‖²."""
    return lambda f: l2 * f.double() * metric.field_in_z(metric.field_in_z(f.double()))


def _flat_batches(points: ScoredPoints, index: Tensor, batch: int) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    for rows in index.split(max(1, _CONTRIBUTION_ROWS // batch) * batch):
        x, score = (part.reshape(len(part), -1) for part in points.take(rows))
        yield rows, x, score


def _shaped(critic: Critic, shape: tuple[int, ...]) -> Field:
    """A critic of points of some shape, as a field on flat points."""

    def flat(x: Tensor) -> tuple[Tensor, Tensor]:
        f, slopes = critic.eval().value_and_diagonal(x.reshape(len(x), *shape))
        return f.reshape(len(x), -1), slopes.reshape(len(x), -1)

    return flat


class Recipe:
    """How to explain a result, with references to the points. Pickling leaves them out, and so does copying to a dict.

    Arguments:
        explain: Makes the explanation, from how many of the worst points to keep and the position of the critic.
        without_field: The critics that are no vector fields, so that there is nothing to explain.
    """

    def __init__(
        self, explain: Callable[[int, int], Explanation] | None = None, without_field: tuple[str, ...] = ()
    ) -> None:
        self._explain, self.without_field = explain, without_field

    def __call__(self, worst: int, position: int = 0) -> Explanation:
        """Make the explanation."""
        if self._explain is None:
            raise InputError("explain", "a result that was saved and loaded has no points left to explain")
        return self._explain(worst, position)

    def __reduce__(self) -> tuple[type[Recipe], tuple[None, tuple[str, ...]]]:
        return Recipe, (None, self.without_field)

    def __deepcopy__(self, memo: dict[int, Any]) -> Recipe:
        return self
