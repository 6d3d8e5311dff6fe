"""Radial kernels with their derivatives, and the width that fits points."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from steinscope.shapes import FlatPoints
from steinscope.support.checks import check_choice, check_number

__all__ = ["KernelName", "Radial", "median_distance", "radial", "squared_distances"]

KernelName = Literal["gaussian", "imq"]
Radial = Callable[[Tensor], tuple[Tensor, Tensor, Tensor]]
_MEDIAN_ROWS = 1000


def radial(kernel: KernelName, bandwidth: float) -> Radial:
    """φ with its first two derivatives, as a function of the squared distance."""
    check_number("bandwidth", bandwidth, over=0)
    check_choice("kernel", kernel, ("gaussian", "imq"))
    if kernel == "gaussian":
        rate = 0.5 / bandwidth**2

        def gaussian(squared: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            value = torch.exp(-rate * squared)
            # A product may be infinite, which is refused later; a power of a Python number may not.
            return value, -rate * value, rate * rate * value

        return gaussian
    rate = 1.0 / bandwidth**2

    def inverse_multiquadric(squared: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        base = 1 + rate * squared
        value = base.rsqrt()
        first = value / base * (-0.5 * rate)
        return value, first, first / base * (-1.5 * rate)

    return inverse_multiquadric


def squared_distances(a: FlatPoints, b: Float[Tensor, "m d"]) -> Float[Tensor, "n m"]:
    """The squared distance between all points of a and b, by one matrix product."""
    return torch.addmm(a.square().sum(1)[:, None], a, b.T, alpha=-2).add_(b.square().sum(1)).clamp_min_(0)


def median_distance(x: FlatPoints) -> float:
    """The median distance between points, over at most the first 1000.

    Where most points coincide it is the mean distance, and 1 where all of them do.
    """
    distances = torch.pdist(x[:_MEDIAN_ROWS])
    return float(distances.median()) or float(distances.mean()) or 1.0
