"""Where the modes of a model are: climbs from many starts, which are merged unless there is a valley between them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from steinscope.errors import InputError
from steinscope.modes.surface import Surface
from steinscope.support.tensors import check_tensor

__all__ = ["Modes", "find_modes", "starts_around"]

_MOST_MODES = 20
_CLIMBING_STEPS = 40
_FLAT_ENOUGH = 0.05
_VALLEY = 1.0
_POINTS_OF_SEGMENT = 9
_POLISHING_STEPS = 2
_MOST_WITH_SHAPES = 128
_STARTS = 32
_SPREADS = (2.0, 4.0, 8.0)


@dataclass(frozen=True)
class Modes:
    """Modes, each with a local shape: the covariance of the Gaussian that has the curvature of its top.

    Arguments:
        centres: Where the modes are.
        roots: The symmetric root of each covariance.
        inverse_roots: Their inverses.
        log_volumes: The logarithm of the determinant of each root.
        heights: The log-density at each centre.
    """

    centres: Float[Tensor, "k d"]
    roots: Float[Tensor, "k d d"]
    inverse_roots: Float[Tensor, "k d d"]
    log_volumes: Float[Tensor, " k"]
    heights: Float[Tensor, " k"]

    def __len__(self) -> int:
        return len(self.centres)

    def take(self, which: Tensor) -> Modes:
        """Some of the modes."""
        fields = (self.centres, self.roots, self.inverse_roots, self.log_volumes, self.heights)
        return Modes(*(values[which] for values in fields))

    def local(self, z: Float[Tensor, "n d"], cells: Int[Tensor, " n"]) -> Float[Tensor, "n d"]:
        """Points as their modes see them: from the centre, in units of the shape."""
        local = torch.empty_like(z)
        for number in range(len(self)):
            own = cells == number
            local[own] = (z[own] - self.centres[number]) @ self.inverse_roots[number]
        return local

    def cells(self, z: Float[Tensor, "n d"]) -> Int[Tensor, " n"]:
        """The mode that each point belongs to: that whose Gaussian is the highest there."""
        # Single precision is enough to divide space into cells.
        centres, inverse_roots = self.centres.float(), self.inverse_roots.float()
        squared = torch.matmul(z.float() - centres[:, None], inverse_roots).square().sum(2)
        return (0.5 * squared + self.log_volumes.float()[:, None]).argmin(0)


def find_modes(
    surface: Surface,
    points: Float[Tensor, "n d"],
    generator: torch.Generator,
    starts: Float[Tensor, "m d"] | None = None,
) -> Modes:
    """The modes that climbs reach from some of the points, from places around them, and from further starts.

    There are none where the log-density is finite nowhere that climbs lead to.

    Arguments:
        surface: The log-density.
        points: Points of the data.
        generator: The source of the places around them.
        starts: Further places to start from.
    """
    for name, rows in (("points", points), ("starts", starts)):
        if rows is not None and check_tensor(name, rows).shape[1:] != (surface.dim,):
            raise InputError(name, f"expected rows of {surface.dim} numbers, got shape {tuple(rows.shape)}")
        if rows is not None and not bool(rows.isfinite().all()):
            raise InputError(name, f"row {int((~rows.isfinite()).any(1).nonzero()[0, 0])} is not finite")
    around = starts_around(points, generator)
    if starts is not None:
        around = torch.cat([starts, around])
    tops = _climb(surface, around)
    tops = _merge(surface, tops, surface.log_prob(tops))
    if len(tops) > 1 and tops.shape[1] <= _MOST_WITH_SHAPES:
        for _ in range(_POLISHING_STEPS):
            tops = _newton(surface, tops, _curvatures(surface, tops))
        tops = _merge(surface, tops, surface.log_prob(tops))
    return _with_shapes(surface, tops)


def starts_around(points: Float[Tensor, "n d"], generator: torch.Generator) -> Float[Tensor, "m d"]:
    """Some of the points; points with one coordinate of another; and places around all of them at several scales."""
    like = {"generator": generator, "dtype": points.dtype, "device": points.device}
    n, dim = points.shape
    some = points[torch.randperm(n, generator=generator, device=points.device)[:_STARTS]]
    parts = [some]
    if dim > 1:
        crossed = some.clone()
        column = torch.randint(dim, (len(some), 1), generator=generator, device=points.device)
        parts.append(crossed.scatter_(1, column, some.roll(1, 0).gather(1, column)))
    spread = points.std(0, correction=0).clamp_min(1.0)
    for factor in _SPREADS:
        parts.append(points.mean(0) + factor * spread * torch.randn(_STARTS // 3, dim, **like))
    return torch.cat(parts)


def _climb(surface: Surface, z: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
    """Gradient ascent with the step lengths of Barzilai and Borwein, for each start on its own."""
    z, slope = z.clone(), surface.score(z)
    length = torch.full_like(z[:, :1], 0.1)
    reach = 1.0 + z.shape[1] ** 0.5
    active = torch.arange(len(z), device=z.device)
    for _ in range(_CLIMBING_STEPS):
        active = active[slope[active].abs().amax(1) > _FLAT_ENOUGH]
        if not len(active):
            break
        step = length[active] * slope[active]
        step = step * (reach / step.norm(dim=1, keepdim=True).clamp_min(reach))
        z[active] += step
        new = surface.score(z[active])
        curved = (step * (slope[active] - new)).sum(1, keepdim=True)
        # Where the surface is not bowed downwards the next step is longer.
        fitted = step.square().sum(1, keepdim=True) / curved.clamp_min(1e-12)
        length[active] = torch.where(curved > 0, fitted, 2 * length[active]).clamp(1e-5, 1e4)
        slope[active] = new
    return z


def _merge(surface: Surface, tops: Float[Tensor, "n d"], heights: Float[Tensor, " n"]) -> Float[Tensor, "k d"]:
    """One top for each group without a valley of more than a nat on the straight way to its highest, highest first."""
    left = heights.isfinite().nonzero()[:, 0]
    left = left[heights[left].argsort(descending=True, stable=True)]
    shares = torch.linspace(0.0, 1.0, _POINTS_OF_SEGMENT + 2, dtype=tops.dtype, device=tops.device)[1:-1, None, None]
    kept = []
    while len(left) and len(kept) < _MOST_MODES:
        kept.append(left[0])
        way = torch.lerp(tops[left[:1]], tops[left[1:]], shares)
        lowest = surface.log_prob(way.flatten(0, 1)).reshape(way.shape[:2]).amin(0)
        left = left[1:][lowest < heights[left[1:]] - _VALLEY]
    return tops[torch.stack(kept)] if kept else tops[:0]


def _curvatures(surface: Surface, tops: Float[Tensor, "k d"]) -> Float[Tensor, "k d d"]:
    """Minus the second derivatives of the log-density, from slopes at half a local scale to both sides."""
    k, dim = tops.shape
    step = torch.full_like(tops, 0.1)
    for is_last in (False, True):
        shift = torch.diag_embed(step)
        ends = torch.stack([tops[:, None] + shift, tops[:, None] - shift])
        slopes = surface.score(ends.reshape(-1, dim)).reshape(2, k, dim, dim)
        rows = (slopes[1] - slopes[0]) / (2 * step[:, :, None])
        if is_last:
            break
        step = 0.5 / rows.diagonal(dim1=1, dim2=2).clamp(1e-2, 1e8).sqrt()
    return 0.5 * (rows + rows.transpose(1, 2))


def _spectra(curvatures: Float[Tensor, "k d d"]) -> tuple[Float[Tensor, "k d"], Float[Tensor, "k d d"]]:
    """Eigenvalues, made positive, and eigenvectors."""
    values, vectors = torch.linalg.eigh(curvatures)
    return values.clamp(1e-4, 1e8), vectors


def _newton(surface: Surface, tops: Float[Tensor, "k d"], curvatures: Float[Tensor, "k d d"]) -> Float[Tensor, "k d"]:
    """One step of Newton's method for each top, where it leads up."""
    values, vectors = _spectra(curvatures)
    along = torch.matmul(surface.score(tops)[:, None], vectors) / values[:, None]
    new = tops + torch.matmul(along, vectors.transpose(1, 2))[:, 0]
    is_better = surface.log_prob(new) > surface.log_prob(tops)
    return torch.where(is_better[:, None], new, tops)


def _with_shapes(surface: Surface, tops: Float[Tensor, "k d"]) -> Modes:
    heights, dim = surface.log_prob(tops), tops.shape[1]
    if len(tops) <= 1 or dim > _MOST_WITH_SHAPES:
        unit = torch.eye(dim, dtype=tops.dtype, device=tops.device).expand(len(tops), dim, dim)
        return Modes(tops, unit, unit, torch.zeros_like(heights), heights)
    values, vectors = _spectra(_curvatures(surface, tops))
    scales = values.rsqrt()
    roots = (vectors * scales[:, None]) @ vectors.transpose(1, 2)
    inverse_roots = (vectors / scales[:, None]) @ vectors.transpose(1, 2)
    return Modes(tops, roots, inverse_roots, scales.log().sum(1), heights)
