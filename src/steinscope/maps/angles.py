"""Sines and cosines of multiples of an angle."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["FREQUENCIES", "multiple_angles"]

FREQUENCIES = (0.5, 1.0, 2.0, 3.0)


def multiple_angles(u: Tensor) -> list[tuple[Tensor, Tensor]]:
    """Sine and cosine of u/2, u, 2u and 3u. Addition theorems cost a fraction of the functions themselves."""
    half_sine, half_cosine = torch.sin(0.5 * u), torch.cos(0.5 * u)
    sine, cosine = 2 * half_sine * half_cosine, 1 - 2 * half_sine.square()
    double_sine, double_cosine = 2 * sine * cosine, 1 - 2 * sine.square()
    triple_sine = double_sine * cosine + double_cosine * sine
    triple_cosine = double_cosine * cosine - double_sine * sine
    return [(half_sine, half_cosine), (sine, cosine), (double_sine, double_cosine), (triple_sine, triple_cosine)]
