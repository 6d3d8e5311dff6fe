"""Layers whose first weights come from a generator, not from the global random state."""

from __future__ import annotations

import math

import torch
from torch import nn

from steinscope.errors import InputError

__all__ = ["linear_layers"]

# 8 GiB in single precision.
_MOST_WEIGHTS = 2**31


def linear_layers(sizes: list[int], generator: torch.Generator) -> nn.ModuleList:
    """Linear layers from each size to the next, with torch's usual first weights, drawn from `generator`."""
    weights = sum(inputs * outputs for inputs, outputs in zip(sizes, sizes[1:], strict=False))
    if weights > _MOST_WEIGHTS:
        raise InputError("dim", f"layers of {sizes} units would have {weights} weights, more than {_MOST_WEIGHTS}")
    return nn.ModuleList(_linear(inputs, outputs, generator) for inputs, outputs in zip(sizes, sizes[1:], strict=False))


def _linear(inputs: int, outputs: int, generator: torch.Generator) -> nn.Linear:
    layer = nn.Linear(inputs, outputs, device="meta", dtype=torch.float32).to_empty(device="cpu")
    bound = 1 / math.sqrt(inputs)
    for parameter in layer.parameters():
        nn.init.uniform_(parameter, -bound, bound, generator=generator)
    return layer
