"""Swish together with its derivative, which is what a closed-form divergence is made of."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

__all__ = ["dropout_mask", "swish_with_derivative"]


class _SwishWithDerivative(torch.autograd.Function):
    """h = a σ(a) and d = ∂h/∂a, both multiplied by a dropout mask.

    With u = σ(a): d = h + u (1 - h), and the derivative of d is (1 - u)(2 d - h). A mask m multiplies h and d, and
    leaves both formulas as they are. Written with `lerp`, forward and backward are three and four passes over memory;
    the same by autograd takes more than twice as many, and at these sizes memory is what costs.
    """

    @staticmethod
    def forward(ctx: Any, a: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        u = torch.sigmoid(a)
        h = a.mul_(u)
        d = torch.lerp(h, h.new_ones(()), u)
        if mask is not None:
            h.mul_(mask)
            d.mul_(mask)
        ctx.mark_dirty(a)
        ctx.save_for_backward(u, h, d)
        return h, d

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_h: Tensor, grad_d: Tensor) -> tuple[Tensor, None]:  # pyright: ignore[reportIncompatibleMethodOverride]
        u, h, d = ctx.saved_tensors
        second = torch.lerp(h, d, 2.0).lerp_(h.new_zeros(()), u)
        return second.mul_(grad_d).addcmul_(grad_h, d), None


def swish_with_derivative(a: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Swish of `a` and its derivative, both times `mask`. Overwrites `a`; differentiable once."""
    return _SwishWithDerivative.apply(a, mask)  # pyright: ignore[reportReturnType]


def dropout_mask(like: Tensor, rate: float, generator: torch.Generator) -> Tensor:
    """A mask that is 0 with probability `rate` and 1 / (1 - rate) otherwise.

    Four decisions are taken from one 64-bit random number, so that `rate` is rounded to a multiple of 2⁻¹⁶ and drawing
    a mask costs a quarter of what a uniform number for each unit would.
    """
    levels = 2**16
    dropped = round(rate * levels)
    size = like.numel()
    words = torch.empty(-(-size // 4), dtype=torch.int64, device=like.device)
    words.random_(-(2**63), None, generator=generator)
    kept = words.view(torch.int16)[:size].view(like.shape) >= dropped - levels // 2
    return kept.to(like.dtype).mul_(levels / (levels - dropped))
