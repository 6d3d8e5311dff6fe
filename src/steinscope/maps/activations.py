"""Swish together with its derivative, which is what a closed-form divergence is made of."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from steinscope.support.randomness import PartGenerator

__all__ = ["dropout_mask", "linear_with_trace", "swish_with_derivative", "swish_with_tangent"]


class _SwishWithDerivative(torch.autograd.Function):
    """h = a σ(a) and d = ∂h/∂a, both multiplied by a dropout mask.

    With u = σ(a): d = h + u (1 - h), and the derivative of d is (1 - u)(2 d - h). A mask m multiplies h and d, and
    leaves both formulas as they are. Written with `lerp`, forward and backward are three and four passes over memory;
    the same by autograd takes more than twice as many, and at these sizes memory is what costs.
    """

    @staticmethod
    def forward(ctx: Any, a: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        u, h, d = _swish(a, mask)
        ctx.mark_dirty(a)
        ctx.save_for_backward(u, h, d)
        return h, d

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_h: Tensor, grad_d: Tensor) -> tuple[Tensor, None]:
        u, h, d = ctx.saved_tensors
        # Not in place: several gradients may come at once, where a Jacobian is taken.
        return torch.addcmul(_second_derivative(u, h, d) * grad_d, grad_h, d), None


def _swish(a: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """u, h and d. Overwrites `a` by h."""
    u = torch.sigmoid(a)
    h = a.mul_(u)
    d = torch.lerp(h, h.new_ones(()), u)
    if mask is not None:
        h.mul_(mask)
        d.mul_(mask)
    return u, h, d


def _second_derivative(u: Tensor, h: Tensor, d: Tensor) -> Tensor:
    return torch.lerp(h, d, 2.0).lerp_(h.new_zeros(()), u)


class _SwishWithTangent(torch.autograd.Function):
    """From points and tangents as the two halves of one array: swish of the points, its derivative times the tangents.

    One array, so that each layer is one product for both, and the gradient of its weights is one product too.
    """

    @staticmethod
    def forward(ctx: Any, both: Tensor, bias: Tensor, mask: Tensor | None) -> Tensor:
        result = torch.empty_like(both)
        (a, tangent), (h, h_tangent) = both.chunk(2), result.chunk(2)
        u, h, d = _swish(torch.add(a, bias, out=h), mask)
        torch.mul(tangent, d, out=h_tangent)
        ctx.save_for_backward(u, d, result, tangent)
        return result

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:
        u, d, value, tangent = ctx.saved_tensors
        grad_h, grad_tangent = grad.chunk(2)
        result = torch.empty_like(value)
        grad_a, grad_t = result.chunk(2)
        torch.mul(grad_tangent, d, out=grad_t)
        second = _second_derivative(u, value.chunk(2)[0], d)
        torch.mul(grad_h, d, out=grad_a).addcmul_(second.mul_(tangent), grad_tangent)
        return result, grad_a.sum(0), None


class _LinearWithTrace(torch.autograd.Function):
    """The last layer for points and tangents t of a probe v: W h + b for the points, and vᵀ W t.

    The second is (vᵀ W) t, so that t needs no product of its own, and the gradient of W is one product for both.
    """

    @staticmethod
    def forward(ctx: Any, both: Tensor, weight: Tensor, bias: Tensor, probe: Tensor) -> tuple[Tensor, Tensor]:
        hidden, tangent = both.chunk(2)
        back = probe @ weight
        ctx.save_for_backward(both, weight, probe, back)
        return torch.addmm(bias, hidden, weight.T), torch.linalg.vecdot(tangent, back)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_f: Tensor, grad_trace: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        both, weight, probe, back = ctx.saved_tensors
        column = grad_trace.unsqueeze(1)
        grad_weight = torch.cat([grad_f, column * probe]).T @ both
        grad_both = torch.empty_like(both)
        grad_hidden, grad_tangent = grad_both.chunk(2)
        torch.mm(grad_f, weight, out=grad_hidden)
        torch.mul(column, back, out=grad_tangent)
        return grad_both, grad_weight, grad_f.sum(0), None


def swish_with_derivative(a: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Swish of `a` and its derivative, both times `mask`. Overwrites `a`; differentiable once."""
    return _SwishWithDerivative.apply(a, mask)


def swish_with_tangent(both: Tensor, bias: Tensor, mask: Tensor | None = None) -> Tensor:
    """Swish of a + bias, and its derivative times t, both times `mask`, where a and t are the halves of `both`.

    Differentiable once.
    """
    return _SwishWithTangent.apply(both, bias, mask)


def linear_with_trace(both: Tensor, weight: Tensor, bias: Tensor, probe: Tensor) -> tuple[Tensor, Tensor]:
    """W h + b and vᵀ W t, where h and t are the halves of `both` and v is the probe. Differentiable once."""
    return _LinearWithTrace.apply(both, weight, bias, probe)


def dropout_mask(like: Tensor, rate: float, generator: torch.Generator) -> Tensor:
    """A mask that is 0 with probability `rate` and 1 / (1 - rate) otherwise.

    Four decisions are taken from one 64-bit random number, so that `rate` is rounded to a multiple of 2⁻¹⁶ and drawing
    a mask costs a quarter of what a uniform number for each unit would.
    """
    levels = 2**16
    dropped = round(rate * levels)
    if isinstance(generator, PartGenerator):
        # As with `normal_rows`: the processes together have the mask of one.
        whole = like.new_empty(generator.parts * len(like), *like.shape[1:])
        return _mask(whole, dropped, levels, generator)[generator.part :: generator.parts]
    return _mask(like, dropped, levels, generator)


def _mask(like: Tensor, dropped: int, levels: int, generator: torch.Generator) -> Tensor:
    size = like.numel()
    words = torch.empty(-(-size // 4), dtype=torch.int64, device=like.device)
    words.random_(-(2**63), None, generator=generator)
    kept = words.view(torch.int16)[:size].view(like.shape) >= dropped - levels // 2
    return kept.to(like.dtype).mul_(levels / (levels - dropped))
