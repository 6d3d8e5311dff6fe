r"""Stein kernels of radial kernels, by matrix products.

For a kernel $k(x, y) = \varphi(\|x - y\|^2)$ and scores s the Stein kernel is
$u(x, y) = \varphi\, s_x \cdot s_y + 2\varphi' (x - y) \cdot (s_y - s_x) - 2d\varphi' - 4 \|x - y\|^2 \varphi''$.
A matrix of it is three products of n × d matrices and a few passes over the result.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, get_args

import torch
from jaxtyping import Float, Int
from torch import Tensor

from steinscope.chains import in_chains, measure_chains, scores_in_chains
from steinscope.densities import model_of
from steinscope.errors import InputError
from steinscope.maps.radial import Radial
from steinscope.metric import Coordinates, Metric
from steinscope.results import support_notes
from steinscope.scoring import make_points
from steinscope.support.checks import check_choice

__all__ = ["TILE_ROWS", "Sample", "combine", "make_sample", "products", "stein_kernel", "stein_tiles"]

TILE_ROWS = 2048


@dataclass(frozen=True)
class Sample:
    """Points and scores in memory, flat: what every kernel test works on.

    Arguments:
        x: The points, in unconstrained coordinates where the model has a support.
        score: The scores there.
        outer_dim: The number of coordinates as the user knows them, where it is another.
        notes: What a reader of the result should know about the points.
        batch: The length of the batches that the rows consist of, where they are draws of chains.
        places: The place of each row's batch in time, where they are; see `Chains.places`.
    """

    x: Float[Tensor, "n d"]
    score: Float[Tensor, "n d"]
    outer_dim: int | None = None
    notes: tuple[str, ...] = ()
    batch: int = 1
    places: Int[Tensor, " n"] | None = None

    def __len__(self) -> int:
        return len(self.x)

    @property
    def dim(self) -> int:
        """The number of coordinates that a result tells."""
        return self.x.shape[1] if self.outer_dim is None else self.outer_dim

    def rows(self, index: Tensor | slice) -> Sample:
        """Some of the points."""
        places = None if self.places is None else self.places[index]
        return replace(self, x=self.x[index], score=self.score[index], places=places)

    def split(self, share: float, least: int, generator: torch.Generator) -> tuple[Sample, Sample]:
        """A random share of the points, at least so many, and the others. Batches of chains stay whole."""
        order = torch.randperm(len(self) // self.batch, generator=generator, device=generator.device)
        count = max(math.ceil(least / self.batch), round(share * len(order)))
        in_batches = torch.arange(len(self), device=self.x.device).reshape(-1, self.batch)
        first, second = (in_batches[rows.to(self.x.device)].flatten() for rows in (order[:count], order[count:]))
        return self.rows(first), self.rows(second)


def make_sample(
    x: Any, model: Any, metric: Coordinates, support: Any = None, least: int = 4, chains: bool | None = None
) -> Sample:
    """Checked points and scores in the coordinates of a metric.

    Arguments:
        x: The points.
        model: The model, or its scores.
        metric: The coordinates. They are centred, which no Stein kernel sees and which keeps distances exact.
        support: Where the model's density is positive; by default what the model says.
        least: How many points a test needs.
        chains: Whether x holds draws of Markov chains, of shape (chains, draws, ...); by default `Draws` do. Those that
            fill no batch are left out.
    """
    check_choice("metric", metric, get_args(Coordinates))
    x, shape = in_chains(x, chains)
    model = scores_in_chains(model_of(x, model), shape)
    points = make_points(x, model, support=support).with_room()
    if len(points) < least:
        raise InputError("x", f"{len(points)} rows are too few for this test, which needs {least}")
    rows, score = points.take(slice(None))
    coordinates = Metric.named(metric, rows, score)
    sample = Sample(coordinates.points(rows), coordinates.scores(score), points.outer_dim, support_notes(points))
    if shape is None:
        return sample
    known = measure_chains(points, shape).checked()
    places = known.places.repeat_interleave(known.batch).to(sample.x.device)
    notes = (f"{known}, effective {known.effective:.0f}; batches of {known.batch} draws", *sample.notes)
    kept = sample.rows(known.batches.flatten().to(sample.x.device))
    return replace(kept, batch=known.batch, places=places, notes=notes)


def stein_kernel(phi: Radial, a: Sample, b: Sample) -> Float[Tensor, "n m"]:
    """The Stein kernel between all points of two samples."""
    return combine(phi, *products(a, b), a.x.shape[1])


def products(a: Sample, b: Sample) -> tuple[Tensor, Tensor, Tensor]:
    """Squared distances, products of scores, and (x - y)·(s_y - s_x): all that a Stein kernel is made of."""
    squared = torch.addmm(a.x.square().sum(1)[:, None], a.x, b.x.T, alpha=-2).add_(b.x.square().sum(1)).clamp_min_(0)
    cross = torch.addmm(-(a.x * a.score).sum(1)[:, None], a.x, b.score.T).addmm_(a.score, b.x.T)
    return squared, a.score @ b.score.T, cross.sub_((b.x * b.score).sum(1))


def combine(phi: Radial, squared: Tensor, score_product: Tensor, cross: Tensor, dim: int) -> Tensor:
    """The Stein kernel from the products."""
    value, first, second = phi(squared)
    result = value.mul_(score_product)
    result.addcmul_(first, cross - dim, value=2.0)
    return result.addcmul_(second, squared, value=-4.0)


def stein_tiles(
    phi: Radial, sample: Sample, rows: int = TILE_ROWS, starts: Sequence[int] | None = None
) -> Iterator[tuple[slice, slice, Tensor]]:
    """The upper triangle of the Stein kernel matrix, tile by tile, zero on the diagonal.

    For chains it is zero within batches and between those that follow each other.

    Arguments:
        phi: The kernel.
        sample: Points and scores.
        rows: The rows of a tile.
        starts: The first rows of the tiles that are wanted; by default of all.
    """
    for i in range(0, len(sample), rows) if starts is None else starts:
        for j in range(i, len(sample), rows):
            a, b = slice(i, min(i + rows, len(sample))), slice(j, min(j + rows, len(sample)))
            tile = stein_kernel(phi, sample.rows(a), sample.rows(b))
            if sample.places is not None:
                tile.masked_fill_((sample.places[a, None] - sample.places[b]).abs() <= 1, 0.0)
            elif i == j:
                tile.fill_diagonal_(0.0)
            yield a, b, tile
