r"""Coordinates in which discrepancies are measured.

A critic's penalty $\lambda E\|f\|^2$ depends on the units of the coordinates, and so does the discrepancy: it is
$E\|s_q - s_p\|^2 / 2\lambda$ in the coordinates $z = L (x - m)$, where scores are $L^{-\top} s$ and a critic f of x is
$g(z) = L f(x)$. Stein values do not depend on the coordinates.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from steinscope.errors import InputError
from steinscope.shapes import FlatPoints, Points, flattened

__all__ = ["Coordinates", "Metric", "MetricName"]

MetricName = Literal["scaled", "whitened", "identity"]
Coordinates = Literal["scores", "scaled", "whitened", "identity"]


@dataclass(frozen=True)
class Metric:
    """New coordinates: each divided by its own scale, or all of them mixed by a matrix. All numbers are in float64.

    Arguments:
        centre: The vector m.
        scale: The scale of each coordinate, for L = diag(1 / scale).
        root: The inverse of L where L is a symmetric matrix; `scale` is then not used.
        inverse_root: L itself in that case.
    """

    centre: Float[Tensor, " d"]
    scale: Float[Tensor, " d"]
    root: Float[Tensor, "d d"] | None = None
    inverse_root: Float[Tensor, "d d"] | None = None

    @classmethod
    def named(cls, name: Coordinates, x: Points, score: Points) -> Metric:
        """Coordinates by their name, from points and scores: `"scores"` for those of `by_scores`."""
        if name == "scores":
            return cls.by_scores(x, score)
        if name == "scaled":
            return cls.scaled(x, score)
        return cls.whitened(x) if name == "whitened" else cls.identity(x)

    @classmethod
    def scaled(cls, x: Points, score: Points) -> Metric:
        """Each coordinate in units of its standard deviation, so that no unit of a coordinate matters.

        A coordinate that does not vary is measured in units of one over its root mean square score, which is a length,
        too.
        """
        flat, scores = (flattened(rows).double() for rows in (x, score))
        centre = _mean(flat)
        scale, others = _root_mean_square(flat - centre), _root_mean_square(scores)
        # What rounding leaves of a constant is not a scale.
        varies = (flat != flat[0]).any(0) & (scale > 1e-14 * centre.abs())
        scale = torch.where(~varies & (others > 0), 1 / others.clamp_min(1e-300), scale)
        return cls(centre, torch.where(scale > 0, scale, torch.ones_like(scale)))

    @classmethod
    def by_scores(cls, x: Points, score: Points) -> Metric:
        """Each coordinate in units of one over its root mean square score, which is a length, too.

        For a Gaussian that is the standard deviation given the other coordinates. A coordinate whose score is zero is
        measured in units of its own standard deviation.
        """
        spread = cls.scaled(x, score)
        size = _root_mean_square(flattened(score).double())
        return cls(spread.centre, torch.where(size > 0, 1 / size.clamp_min(1e-300), spread.scale))

    @classmethod
    def whitened(cls, x: Points, shrinkage: float = 0.01) -> Metric:
        """Coordinates in which x has the identity as covariance, which is shrunk a little towards a multiple of it."""
        flat = flattened(x).double()
        centre, covariance = flat.mean(0), torch.atleast_2d(torch.cov(flat.T))
        level = float(covariance.diagonal().mean())
        if not 0.0 < level < float("inf"):
            raise InputError("x", "its points are all the same, or too far apart, so they cannot be whitened")
        covariance = (1 - shrinkage) * covariance
        covariance.diagonal().add_(shrinkage * level)
        eigenvalues, vectors = torch.linalg.eigh(covariance)
        roots = eigenvalues.clamp_min(1e-300).sqrt()
        return cls(centre, torch.ones_like(centre), (vectors * roots) @ vectors.T, (vectors / roots) @ vectors.T)

    @classmethod
    def identity(cls, x: Points) -> Metric:
        """The coordinates of x, centred."""
        flat = flattened(x).double()
        return cls(_mean(flat), torch.ones_like(flat[0]))

    def is_close_to(self, other: Metric) -> bool:
        """Whether both scale each coordinate alike, and have the same centre on that scale."""
        moved = (self.centre - other.centre) / self.scale
        return bool((moved.abs() < 1e-3).all()) and torch.allclose(self.scale, other.scale, rtol=1e-3, atol=0.0)

    def points(self, x: Points) -> FlatPoints:
        """Points in the new coordinates, in the type of x. They are centred before anything is rounded."""
        return self.wide_points(x).to(x.dtype)

    def wide_points(self, x: Points) -> FlatPoints:
        """Points in the new coordinates, in float64."""
        moved = flattened(x).double() - self.centre
        return moved / self.scale if self.inverse_root is None else moved @ self.inverse_root

    def original(self, z: FlatPoints) -> FlatPoints:
        """Points in the coordinates of x."""
        wide = z.double()
        return ((wide * self.scale if self.root is None else wide @ self.root) + self.centre).to(z.dtype)

    def scores(self, score: Points) -> FlatPoints:
        """Scores in the new coordinates, in their own type."""
        return self._stretched(flattened(score))

    def wide_scores(self, score: Points) -> FlatPoints:
        """Scores in the new coordinates, in float64."""
        return self._stretched(flattened(score).double())

    def field_in_x(self, g: FlatPoints) -> FlatPoints:
        """The values of a critic of z as those of a critic of x."""
        return self._stretched(g)

    def field_in_z(self, f: FlatPoints) -> FlatPoints:
        """The values of a critic of x as those of a critic of z."""
        wide = f.double()
        return (wide / self.scale if self.inverse_root is None else wide @ self.inverse_root).to(f.dtype)

    def _stretched(self, rows: FlatPoints) -> FlatPoints:
        wide = rows.double()
        return (wide * self.scale if self.root is None else wide @ self.root).to(rows.dtype)


def _mean(rows: Float[Tensor, "n d"]) -> Float[Tensor, " d"]:
    """The mean of each column. That of equal numbers is that number, whatever rounding makes of their sum."""
    return rows[0] + (rows - rows[0]).mean(0)


def _root_mean_square(rows: Float[Tensor, "n d"]) -> Float[Tensor, " d"]:
    """The root mean square of each column. No square leaves the range of numbers."""
    largest = rows.abs().amax(0)
    return largest * (rows / largest.clamp_min(1e-300)).square().mean(0).sqrt()
