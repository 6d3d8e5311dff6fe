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
from steinscope.shapes import FlatPoints, Points

__all__ = ["Metric", "MetricName"]

MetricName = Literal["scaled", "whitened", "identity"]


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
    def scaled(cls, x: Points, score: Points) -> Metric:
        """Each coordinate in units of its standard deviation, so that no unit of a coordinate matters.

        A coordinate that does not vary is measured in units of one over its root mean square score, which is a length,
        too.
        """
        flat, scores = (rows.reshape(len(rows), -1).double() for rows in (x, score))
        centre = flat.mean(0)
        scale = (flat - centre).square().mean(0).sqrt()
        # What rounding leaves of a constant is not a scale.
        is_constant = scale <= 1e-7 * centre.abs()
        others = scores.square().mean(0).sqrt()
        scale = torch.where(is_constant & (others > 0), 1 / others.clamp_min(1e-300), scale)
        return cls(centre, torch.where(scale > 0, scale, torch.ones_like(scale)))

    @classmethod
    def by_scores(cls, x: Points, score: Points) -> Metric:
        """Each coordinate in units of one over its root mean square score, which is a length, too.

        For a Gaussian that is the standard deviation given the other coordinates. A coordinate whose score is zero is
        measured in units of its own standard deviation.
        """
        spread = cls.scaled(x, score)
        size = score.reshape(len(score), -1).double().square().mean(0).sqrt()
        return cls(spread.centre, torch.where(size > 0, 1 / size.clamp_min(1e-300), spread.scale))

    @classmethod
    def whitened(cls, x: Points, shrinkage: float = 0.01) -> Metric:
        """Coordinates in which x has the identity as covariance, which is shrunk a little towards a multiple of it."""
        flat = x.reshape(len(x), -1).double()
        centre, covariance = flat.mean(0), torch.atleast_2d(torch.cov(flat.T))
        level = float(covariance.diagonal().mean())
        if not level > 0.0:
            raise InputError("x", "all points are the same, so they cannot be whitened")
        covariance = (1 - shrinkage) * covariance
        covariance.diagonal().add_(shrinkage * level)
        eigenvalues, vectors = torch.linalg.eigh(covariance)
        roots = eigenvalues.clamp_min(1e-300).sqrt()
        return cls(centre, torch.ones_like(centre), (vectors * roots) @ vectors.T, (vectors / roots) @ vectors.T)

    @classmethod
    def identity(cls, x: Points) -> Metric:
        """The coordinates of x, centred."""
        flat = x.reshape(len(x), -1).double()
        return cls(flat.mean(0), torch.ones_like(flat[0]))

    def points(self, x: Points) -> FlatPoints:
        """Points in the new coordinates, in the type of x. They are centred before anything is rounded."""
        moved = x.reshape(len(x), -1).double() - self.centre
        return (moved / self.scale if self.inverse_root is None else moved @ self.inverse_root).to(x.dtype)

    def original(self, z: FlatPoints) -> FlatPoints:
        """Points in the coordinates of x."""
        wide = z.double()
        return ((wide * self.scale if self.root is None else wide @ self.root) + self.centre).to(z.dtype)

    def scores(self, score: Points) -> FlatPoints:
        """Scores in the new coordinates."""
        return self._stretched(score.reshape(len(score), -1))

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
