"""Where a model lives: the support that it declares or that the user names, read into one normal form.

Stein's identity needs a density that vanishes at the edge of its support. Most densities on a bounded set do not, but
all of them do in unconstrained coordinates (see `steinscope.unconstrained`), so the support must be known.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.distributions import (
    ComposeTransform,
    Distribution,
    Independent,
    IndependentTransform,
    MixtureSameFamily,
    Transform,
    TransformedDistribution,
    VonMises,
    constraints,
)

from steinscope.errors import InputError
from steinscope.settings import SUPPORT_WORDS

__all__ = ["Region", "check_support", "common_region", "find_region"]

_SETS = (constraints.real, constraints.positive, constraints.unit_interval, constraints.simplex)
_WORDS: Mapping[str, constraints.Constraint] = dict(zip(SUPPORT_WORDS, _SETS, strict=True))
_EXPECTED = (
    "expected 'real', 'positive', 'unit', 'simplex', (low, high), a constraint of torch.distributions, or a list with "
    "one of them for each coordinate"
)
# A row of float32 numbers adds up to 1 but for rounding, and numbers in a table have few digits.
_SIMPLEX_ERROR = 1e-4


@dataclass(frozen=True, eq=False)
class Region:
    """The set of points where a density is positive: bounds for each coordinate, and groups that add up to 1.

    Arguments:
        shape: The shape of a point.
        low: The lower bound of each coordinate of the flat point, minus infinity where there is none.
        high: The upper bound.
        simplices: Numbers of coordinates, one group in each row, whose values add up to 1.
    """

    shape: tuple[int, ...]
    low: Float[Tensor, " d"]
    high: Float[Tensor, " d"]
    simplices: tuple[Int[Tensor, "m k"], ...] = ()

    @property
    def is_everything(self) -> bool:
        """Whether no coordinate is bounded."""
        return bool((self.low == -math.inf).all() and (self.high == math.inf).all())

    def is_same(self, other: Region) -> bool:
        """Whether both are the same set."""
        return (
            torch.equal(self.low, other.low)
            and torch.equal(self.high, other.high)
            and len(self.simplices) == len(other.simplices)
            and all(torch.equal(a, b) for a, b in zip(self.simplices, other.simplices, strict=True))
        )

    def check(self, x: Tensor, name: str, start: int = 0) -> None:
        """An `InputError` that names the first row that is not inside, where row 0 is the user's row `start`."""
        flat = x.detach().reshape(len(x), -1).double()
        low, high = self.low.to(flat.device), self.high.to(flat.device)
        bad = ((flat <= low) | (flat >= high)).nonzero()
        if len(bad):
            row, i = bad[0].tolist()
            value, at_edge = float(x.reshape(len(x), -1)[row, i]), bool(flat[row, i] in (low[i], high[i]))
            where = "at the edge" if at_edge else "outside"
            hint = "; every point must lie inside, where the density is positive" if at_edge else ""
            coordinate = f" in coordinate {i}" if len(low) > 1 else ""
            raise InputError(
                name, f"row {start + row} holds {value:g}{coordinate}, {where} of the support {self._interval(i)}{hint}"
            )
        for groups in self.simplices:
            sums = flat[:, groups.to(flat.device)].sum(2)
            bad = ((sums - 1).abs() > _SIMPLEX_ERROR).nonzero()
            if len(bad):
                row, group = bad[0].tolist()
                raise InputError(
                    name,
                    f"row {start + row} adds up to {float(sums[row, group]):.6g}; the support is a simplex, on which "
                    "every row adds up to 1",
                )

    def mirrored(self, x: Tensor) -> Tensor:
        """Points inside: those that are outside are mirrored at the edges, and rows on a simplex are rescaled."""
        flat = x.reshape(len(x), -1).double()
        low, high = self.low.to(x.device), self.high.to(x.device)
        width = torch.where((high - low).isfinite(), high - low, 1.0)
        folded = ((flat - low) / width) % 2
        both = low + width * torch.minimum(folded, 2 - folded)
        flat = torch.where(low.isfinite() & high.isinf(), low + (flat - low).abs(), flat)
        flat = torch.where(low.isinf() & high.isfinite(), high - (high - flat).abs(), flat)
        flat = torch.where(low.isfinite() & high.isfinite(), both, flat)
        for groups in self.simplices:
            index = groups.to(x.device)
            flat[:, index] = flat[:, index] / flat[:, index].sum(2, keepdim=True)
        return flat.to(x.dtype).reshape(x.shape)

    def _interval(self, i: int) -> str:
        return f"({float(self.low[i]):g}, {float(self.high[i]):g})"

    def __str__(self) -> str:
        if self.simplices:
            return "a simplex"
        kinds = list(dict.fromkeys(self._interval(i) for i in range(len(self.low))))
        return kinds[0] if len(kinds) == 1 else " × ".join(kinds[:3]) + (" × …" if len(kinds) > 3 else "")


# Autograd refuses bounds and indices that were made in inference mode.
@torch.inference_mode(False)
def find_region(support: Any, model: Any, shape: Sequence[int]) -> Region | None:
    """The region of a model, or None where it is everything or nothing is known.

    Arguments:
        support: What the user says; it takes precedence.
        model: A model, whose attribute `support` is read otherwise.
        shape: The shape of a point.

    Example:
        >>> print(find_region(None, torch.distributions.Exponential(1.0), [1]))
        (0, inf)
        >>> print(find_region(["positive", (-1, 1)], None, [2]))
        (0, inf) × (-1, 1)
    """
    name = "model" if support is None else "support"
    constraint = _declared(model) if support is None else _as_constraint(support)
    if constraint is None:
        return None
    size = math.prod(shape)
    low, high = (torch.full((size,), value, dtype=torch.float64) for value in (-math.inf, math.inf))
    reader = _Reader(name, low, high, [])
    reader.read(constraint, torch.arange(size).reshape(tuple(shape)))
    region = Region(tuple(shape), low, high, tuple(reader.simplices))
    return None if region.is_everything else region


def common_region(support: Any, models: Mapping[str, Any], shape: Sequence[int]) -> Region | None:
    """The region on which models are compared: what the user says, or what those that declare a support agree on.

    Discrepancies in different coordinates cannot be compared. Models without a support are taken to have that of the
    others, in which all points lie.
    """
    if support is not None:
        return find_region(support, None, shape)
    found: tuple[str, Region] | None = None
    for name, model in models.items():
        try:
            region = find_region(None, model, shape)
        except InputError:
            # Such a model fails in its own row.
            continue
        if region is not None and found is not None and not region.is_same(found[1]):
            raise InputError(
                "models",
                f"{found[0]} lives on {found[1]} and {name} on {region}; discrepancies on different supports cannot be "
                "compared, so say with support= where to look at all of them",
            )
        found = found or (None if region is None else (name, region))
    return None if found is None else found[1]


def check_support(support: Any) -> Any:
    """What a user says about a support, if it can be read."""
    if support is not None:
        constraint = _as_constraint(support)
        if _is_discrete(constraint):
            _refuse_discrete("support", constraint)
    return support


def _as_constraint(support: Any) -> constraints.Constraint:
    if isinstance(support, constraints.Constraint):
        return support
    if isinstance(support, str):
        if support not in _WORDS:
            raise InputError("support", f"{_EXPECTED}, got {support!r}")
        return _WORDS[support]
    if not isinstance(support, list | tuple) or len(support) == 0:
        raise InputError("support", f"{_EXPECTED}, got {support!r}")
    if len(support) == 2 and all(_is_bound(part) for part in support):
        return _interval(*support)
    parts = [_as_constraint(part) for part in support]
    if any(part is constraints.simplex for part in parts):
        raise InputError("support", "a single coordinate cannot be a simplex; give support='simplex' for whole rows")
    return constraints.stack(parts, -1)


def _is_bound(value: Any) -> bool:
    return value is None or isinstance(value, int | float | np.number | np.ndarray | Tensor)


def _interval(low: Any, high: Any) -> constraints.Constraint:
    ends = (-math.inf if low is None else low, math.inf if high is None else high)
    below, above = (torch.as_tensor(end, dtype=torch.float64) for end in ends)
    if not bool((below < above).all()):
        raise InputError("support", f"expected (low, high) with low < high, got ({low}, {high})")
    return constraints.interval(below, above)


def _declared(model: Any) -> constraints.Constraint | None:
    """What a model says about its support; None where it says nothing that can be read."""
    if isinstance(model, Independent):
        base = _declared(model.base_dist)
        return None if base is None else constraints.independent(base, model.reinterpreted_batch_ndims)
    if isinstance(model, MixtureSameFamily):
        base = _declared(model.component_distribution)
        return None if base is None else constraints.MixtureSameFamilyConstraint(base)
    if isinstance(model, TransformedDistribution) and type(model).support is TransformedDistribution.support:
        # torch names the set that the last transform could reach from anywhere, not from where the base lives.
        constraint = _declared(model.base_dist)
        for transform in model.transforms:
            constraint = _image(transform, constraint)
        return constraint
    if isinstance(model, VonMises):
        # A density on the circle, which is cut where its points are.
        return constraints.interval(-math.pi, math.pi)
    try:
        support = getattr(model, "support", None)
    except NotImplementedError:
        return None
    if isinstance(support, constraints.Constraint):
        if _is_discrete(support):
            _refuse_discrete("model", support, type(model).__name__ if isinstance(model, Distribution) else None)
        return support
    return _as_constraint(support) if isinstance(support, str | tuple | list) else None


def _is_discrete(constraint: constraints.Constraint) -> bool:
    try:
        return bool(constraint.is_discrete)
    except NotImplementedError:
        return False


def _refuse_discrete(name: str, constraint: constraints.Constraint, what: str | None = None) -> NoReturn:
    raise InputError(
        name,
        f"{what or 'the model'} is discrete, its support is {constraint}; a score needs a density on real numbers",
    )


def _image(transform: Transform, constraint: constraints.Constraint | None) -> constraints.Constraint:
    """The image of a set under a transform: its bounds moved along where that is monotone, otherwise all it reaches."""
    if isinstance(transform, ComposeTransform):
        for part in transform.parts:
            constraint = _image(part, constraint)
        return constraints.real if constraint is None else constraint
    if isinstance(transform, IndependentTransform):
        return _image(transform.base_transform, constraint)
    known = [_bounds(one) for one in (constraint, transform.domain, transform.codomain)]
    if None in known or not transform.bijective:
        return transform.codomain
    (low, high), domain, codomain = (ends for ends in known if ends is not None)
    if bool(torch.isneginf(low).all() and torch.isposinf(high).all()):
        return transform.codomain
    try:
        return _between(transform, low, high, domain, codomain)
    except (NotImplementedError, RuntimeError):
        # The layers of a flow are monotone in no single coordinate: they have no sign, or take whole points alone.
        return transform.codomain


def _between(
    transform: Transform, low: Tensor, high: Tensor, domain: tuple[Tensor, Tensor], codomain: tuple[Tensor, Tensor]
) -> constraints.Constraint:
    """The image of an interval under a monotone transform."""
    rises = torch.as_tensor(transform.sign) > 0

    def moved(value: Tensor) -> Tensor:
        # At an end of the domain transforms round: the inverse of a sigmoid is finite at 0.
        to_low = torch.where(rises, value <= domain[0], value >= domain[1])
        to_high = torch.where(rises, value >= domain[1], value <= domain[0])
        inner = torch.as_tensor(transform(value))
        return torch.where(to_low, codomain[0], torch.where(to_high, codomain[1], inner))

    ends = moved(low), moved(high)
    return constraints.interval(torch.where(rises, *ends), torch.where(rises, *reversed(ends)))


def _bounds(constraint: constraints.Constraint | None) -> tuple[Tensor, Tensor] | None:
    """The lower and upper bound that a constraint sets for every coordinate; None for constraints of another kind."""
    ends: tuple[Any, Any] | None = None
    if isinstance(constraint, constraints.independent):
        return _bounds(constraint.base_constraint)
    if constraint is constraints.real:
        ends = -math.inf, math.inf
    elif isinstance(constraint, constraints.greater_than | constraints.greater_than_eq):
        ends = constraint.lower_bound, math.inf
    elif isinstance(constraint, constraints.less_than):
        ends = -math.inf, constraint.upper_bound
    elif isinstance(constraint, constraints.interval | constraints.half_open_interval):
        ends = constraint.lower_bound, constraint.upper_bound
    if ends is None:
        return None
    low, high = (torch.as_tensor(end, dtype=torch.float64).detach().cpu() for end in ends)
    return low, high


@dataclass
class _Reader:
    """Goes through a constraint and writes down what it says about each coordinate."""

    name: str
    low: Tensor
    high: Tensor
    simplices: list[Tensor]

    def read(self, constraint: constraints.Constraint, index: Tensor, mixture_axis: int | None = None) -> None:
        """Read a constraint on the coordinates with these numbers, arranged as a point is.

        With `mixture_axis` bounds have an axis for the components of a mixture, counted from the end.
        """
        if _is_discrete(constraint):
            _refuse_discrete(self.name, constraint)
        ends = _bounds(constraint)
        if ends is not None:
            low, high = (self._fit(end, index, mixture_axis) for end in ends)
            self.low[index.reshape(-1)], self.high[index.reshape(-1)] = low.reshape(-1), high.reshape(-1)
        elif isinstance(constraint, constraints.independent):
            self.read(constraint.base_constraint, index, mixture_axis)
        elif isinstance(constraint, constraints.MixtureSameFamilyConstraint):
            self.read(constraint.base_constraint, index, 1 + constraint.event_dim)
        elif constraint is constraints.simplex or isinstance(constraint, type(constraints.simplex)):
            if index.ndim == 0 or index.shape[-1] < 2:
                raise InputError(self.name, f"a simplex needs at least 2 coordinates, got points {_shape_text(index)}")
            self.simplices.append(index.reshape(-1, index.shape[-1]))
            self.low[index.reshape(-1)], self.high[index.reshape(-1)] = 0.0, 1.0
        elif isinstance(constraint, constraints.stack):
            index = index.reshape(1) if index.ndim == 0 else index
            if index.ndim != 1 and self.name == "support":
                raise InputError(
                    "support", f"a list has one entry for each coordinate of a vector, got points {_shape_text(index)}"
                )
            self._read_parts(constraint.cseq, index.unbind(constraint.dim), mixture_axis)
        elif isinstance(constraint, constraints.cat):
            sizes = list(constraint.lengths)
            if sum(sizes) != index.shape[constraint.dim]:
                sizes = []
            parts = index.split(sizes, constraint.dim) if sizes else ()
            self._read_parts(constraint.cseq, parts, mixture_axis)
        else:
            raise InputError(
                self.name,
                f"there are no unconstrained coordinates for the support {constraint}; look at the model in "
                "coordinates of your own, or pass support='real' to look at x as it is",
            )

    def _read_parts(self, cseq: Sequence[Any], parts: Sequence[Tensor], mixture_axis: int | None) -> None:
        if len(cseq) != len(parts):
            raise InputError(
                self.name, f"the support has {len(cseq)} parts, and the points have {len(self.low)} coordinates"
            )
        for constraint, part in zip(cseq, parts, strict=True):
            self.read(constraint, part, mixture_axis)

    def _fit(self, bound: Tensor, index: Tensor, mixture_axis: int | None) -> Tensor:
        """A bound for each coordinate."""
        if mixture_axis is not None and bound.ndim >= mixture_axis:
            first = bound.narrow(-mixture_axis, 0, 1)
            if not bool((bound == first).all()):
                raise InputError(
                    self.name,
                    "the components of the mixture end at different values, where its density jumps; Stein's identity "
                    "needs a density without jumps inside of its support",
                )
            bound = first.squeeze(-mixture_axis)
        if bound.isnan().any():
            raise InputError(self.name, "a bound of the support is NaN")
        try:
            return (bound.reshape(()) if bound.numel() == 1 else bound).expand(index.shape)
        except RuntimeError:
            raise InputError(
                self.name, f"the support has bounds of shape {tuple(bound.shape)}, got points {_shape_text(index)}"
            ) from None


def _shape_text(index: Tensor) -> str:
    return f"of shape {tuple(index.shape)}" if index.ndim else "that are single numbers"
