r"""Unconstrained coordinates: where a density on a bounded region vanishes at all ends, as Stein's identity needs.

A bijection $x = T(u)$ takes the whole space to the region. In the coordinates u the log-density is
$\log q(T(u)) + \log |\det J(u)|$ with J the Jacobian of T, and the score is
$J^\top s(x) + \nabla_u \log |\det J(u)|$.

On a simplex x has one coordinate more than u. A score there is any gradient in all coordinates of x of a log-density
with respect to the first of them but the last, as torch.distributions has it: $J^\top s$ depends only on its slopes
along the simplex. A gradient in the first coordinates alone, with a zero for the last, is such a score, too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.distributions import AffineTransform, ComposeTransform, ExpTransform, Transform, biject_to, constraints

from steinscope.densities import as_density, knows_log_prob, log_prob_at, placement
from steinscope.shapes import PerPoint
from steinscope.supports import Region

__all__ = ["Unconstrained", "UnconstrainedModel", "unconstrained_model"]


Inner = Float[Tensor, "n *inner"]
"""Points in unconstrained coordinates."""

Outer = Float[Tensor, "n *outer"]
"""Points as the user knows them."""


@dataclass(frozen=True)
class _Group:
    """Coordinates that one transform makes: the numbers of those of u and of x, and the transform."""

    inner: Tensor
    outer: Tensor
    transform: Transform
    text: str


class Unconstrained:
    """The unconstrained coordinates of a region. Everything is computed in float64.

    Arguments:
        region: The region.

    Example:
        >>> from steinscope.supports import find_region
        >>> coordinates = Unconstrained(find_region("positive", None, [2]))
        >>> coordinates.points(torch.tensor([[1.0, 2.0]]))
        tensor([[0.0000, 0.6931]])
        >>> str(coordinates)
        'log x'
    """

    @torch.inference_mode(False)
    def __init__(self, region: Region) -> None:
        self.region = region
        groups = _groups(region)
        owner = torch.cat([group.outer[..., : group.inner.shape[-1]].reshape(-1) for group in groups])
        order = owner.argsort()
        # Coordinates of u come in the order of those of x that they belong to.
        place = torch.empty_like(order)
        place[order] = torch.arange(len(order))
        self.owner: Int[Tensor, " k"] = owner[order]
        """The coordinate of the flat point x that each coordinate of u belongs to."""
        self._groups = [_Group(place[group.inner], group.outer, group.transform, group.text) for group in groups]

    @property
    def dim(self) -> int:
        """The number of unconstrained coordinates."""
        return len(self.owner)

    @property
    def outer_dim(self) -> int:
        """The number of the user's coordinates."""
        return len(self.region.low)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of a point u: that of x where it has as many coordinates, otherwise a vector."""
        return self.region.shape if self.dim == self.outer_dim else (self.dim,)

    def points(self, x: Outer) -> Inner:
        """The unconstrained coordinates of points of the region, in the type of x."""
        flat = x.reshape(len(x), -1).double()
        parts = [(group.inner, _inverse(group.transform, flat[:, group.outer.to(x.device)])) for group in self._groups]
        return _gathered(parts, self.dim).to(x.dtype).reshape(len(x), *self.shape)

    def original(self, u: Inner, dtype: torch.dtype | None = None) -> Outer:
        """The points x that have these unconstrained coordinates, in the type of u or another, inside of the region."""
        dtype = dtype or u.dtype
        x = self._forward(u)[0].to(dtype)
        low, high = (end.to(u.device).reshape(self.region.shape) for end in (self.region.low, self.region.high))
        # Numbers that round to an edge move to the next one inside.
        return x.clamp(_next_inside(low, 1, dtype), _next_inside(high, -1, dtype))

    def log_det(self, u: Inner) -> PerPoint:
        """The log of the determinant of the Jacobian of x in u; on a simplex, of all of x but the last coordinate."""
        return self._forward(u)[1].to(u.dtype)

    def _forward(self, u: Inner) -> tuple[Outer, PerPoint]:
        """x and log |det J|, in float64."""
        flat = u.reshape(len(u), -1).double()
        parts, log_det = [], flat.new_zeros(len(flat))
        for group in self._groups:
            inner = flat[:, group.inner.to(u.device)]
            outer = group.transform(inner)
            parts.append((group.outer, outer))
            log_det = log_det + group.transform.log_abs_det_jacobian(inner, outer).reshape(len(flat), -1).sum(1)
        return _gathered(parts, self.outer_dim).reshape(len(flat), *self.region.shape), log_det

    def scores(self, u: Inner, score: Outer) -> Inner:
        """The scores in u of a density whose scores in x, at the same points, are given. They keep a graph to both."""
        keeps_graph = torch.is_grad_enabled() and (score.requires_grad or u.requires_grad)
        with torch.inference_mode(False), torch.enable_grad():
            start = u if keeps_graph and u.requires_grad else u.detach().clone().requires_grad_()
            x, log_det = self._forward(start)
            wide = score.to(x) if keeps_graph else score.detach().clone().to(x)
            (pulled,) = torch.autograd.grad(
                [x, log_det], start, [wide.reshape(x.shape), torch.ones_like(log_det)], create_graph=keeps_graph
            )
        return pulled

    def field(self, u: Float[Tensor, "n k"], f: Float[Tensor, "n k"]) -> Float[Tensor, "n d"]:
        """The values J f of a vector field of u as those of a vector field of flat points x."""
        with torch.inference_mode(False), torch.enable_grad():
            start = u.detach().clone().requires_grad_()
            x = self._forward(start)[0].reshape(len(u), -1)
            # J f is the gradient in v of the product of Jᵀ v with f.
            v = torch.zeros_like(x).requires_grad_()
            (pulled,) = torch.autograd.grad(x, start, v, create_graph=True)
            (moved,) = torch.autograd.grad(pulled, v, f.detach().clone().to(pulled))
        return moved.to(f.dtype)

    def by_coordinate(self, terms: Float[Tensor, "n k"]) -> Float[Tensor, "n d"]:
        """Numbers for each coordinate of u as numbers for each coordinate of x that they belong to."""
        if self.dim == self.outer_dim:
            return terms
        return terms.new_zeros(len(terms), self.outer_dim).index_add_(1, self.owner.to(terms.device), terms)

    def __str__(self) -> str:
        texts = [(int(group.outer.min()), group.text, group.outer.numel()) for group in self._groups]
        if len(texts) == 1:
            return texts[0][1]
        named = []
        for group in sorted(self._groups, key=lambda group: int(group.outer.min())):
            if group.text != "x":
                numbers = sorted(group.outer.reshape(-1).tolist())
                where = ", ".join(f"x[{i}]" for i in numbers[:3]) + (", …" if len(numbers) > 3 else "")
                named.append(f"{group.text} for {where}")
        return "; ".join(named)


def _groups(region: Region) -> list[_Group]:
    """One transform for coordinates of each kind."""
    groups: list[_Group] = []
    count = 0
    in_simplex = torch.zeros(len(region.low), dtype=torch.bool)
    for index in region.simplices:
        in_simplex[index.reshape(-1)] = True
        inner = torch.arange(index.numel() - len(index)).reshape(len(index), -1)
        groups.append(_Group(inner + count, index, biject_to(constraints.simplex), "logits of shares of what is left"))
        count += inner.numel()
    for has_low, has_high in ((False, False), (True, False), (False, True), (True, True)):
        chosen = (region.low.isfinite() == has_low) & (region.high.isfinite() == has_high) & ~in_simplex
        index = chosen.nonzero().view(-1)
        if len(index):
            low, high = region.low[index], region.high[index]
            transform, text = _transform(low if has_low else None, high if has_high else None)
            groups.append(_Group(count + torch.arange(len(index)), index, transform, text))
            count += len(index)
    return groups


def _transform(low: Tensor | None, high: Tensor | None) -> tuple[Transform, str]:
    """A bijection from the reals to an interval that rises in every coordinate, and what its inverse is called."""
    if low is None and high is None:
        return ComposeTransform([]), "x"
    if high is None:
        assert low is not None
        return biject_to(constraints.greater_than(low)), "log x" if not low.any() else f"log({_less(low)})"
    if low is None:
        parts: list[Transform] = [AffineTransform(0.0, -1.0), ExpTransform(), AffineTransform(high, -1.0)]
        return ComposeTransform(parts), f"-log({_number(high, 'high')} - x)"
    is_unit = not low.any() and bool((high == 1).all())
    text = "logit x" if is_unit else f"log(({_less(low)}) / ({_number(high, 'high')} - x))"
    return biject_to(constraints.interval(low, high)), text


def _less(low: Tensor) -> str:
    """How far x is above a bound."""
    is_negative = bool((low == low[0]).all()) and float(low[0]) < 0
    return f"x + {_number(-low, 'low')}" if is_negative else f"x - {_number(low, 'low')}"


def _number(values: Tensor, name: str) -> str:
    return f"{float(values[0]):g}" if bool((values == values[0]).all()) else name


def _inverse(transform: Transform, x: Tensor) -> Tensor:
    if transform.codomain is not constraints.simplex:
        return torch.as_tensor(transform.inv(x))
    # torch takes the sum of what comes after a coordinate as 1 minus the others, which rounding spoils near the edge.
    rest = x.flip(-1).cumsum(-1).flip(-1)[..., 1:]
    counts = torch.arange(x.shape[-1] - 1, 0, -1, dtype=x.dtype, device=x.device)
    return x[..., :-1].log() - rest.log() + counts.log()


def _next_inside(edge: Tensor, sign: int, dtype: torch.dtype) -> Tensor:
    """The number of a type that is next to an edge on one side. Next to zero it is the smallest with all its digits."""
    near, limits = edge.to(dtype), torch.finfo(dtype)
    next_to = torch.nextafter(near, torch.full_like(near, sign * torch.inf))
    next_to = torch.where(near == 0, sign * limits.tiny, next_to)
    return torch.where(sign * near > sign * edge, near, next_to).clamp(limits.min, limits.max)


def _gathered(parts: list[tuple[Tensor, Tensor]], size: int) -> Tensor:
    """Columns of several parts, each with its numbers, in the order of the numbers."""
    numbers = torch.cat([index.reshape(-1) for index, _ in parts])
    columns = torch.cat([values.reshape(len(values), -1) for _, values in parts], 1)
    assert len(numbers) == size
    return columns[:, numbers.argsort().to(columns.device)]


class UnconstrainedModel:
    """A model of x as a model of its unconstrained coordinates u.

    It has `log_prob(u)` where the model has that or an energy, and `features(u)` where the model has them. Gradients
    reach the model's parameters.

    Arguments:
        model: The model of x.
        coordinates: The coordinates.
    """

    def __init__(self, model: Any, coordinates: Unconstrained) -> None:
        self.model, self.coordinates = model, coordinates
        if knows_log_prob(model):
            self.log_prob = self._log_prob
        if callable(getattr(model, "features", None)):
            self.features = self._features

    def score(self, u: Inner) -> Inner:
        """The gradient of the log-density in u at each point."""
        return self.coordinates.scores(u, as_density(self.model).score(self._original(u))).to(u)

    def _log_prob(self, u: Inner) -> PerPoint:
        return log_prob_at(self.model, self._original(u)).to(u) + self.coordinates.log_det(u)

    def _features(self, u: Inner) -> Float[Tensor, "n m"]:
        return self.model.features(self._original(u)).to(u)

    def _original(self, u: Inner) -> Outer:
        dtype, device = placement(self.model, u.dtype, u.device)
        return self.coordinates.original(u, dtype).to(device)


def unconstrained_model(model: Any, coordinates: Unconstrained | None) -> Any:
    """The model in these coordinates; the model itself where there are none, or where it is an array of scores."""
    is_model = callable(getattr(model, "score", None)) or knows_log_prob(model)
    if coordinates is None or not is_model:
        return model
    return UnconstrainedModel(model, coordinates)
