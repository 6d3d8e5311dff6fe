"""Layers whose first weights come from a generator, not from the global random state."""

from __future__ import annotations

import math

import torch
from torch import nn

__all__ = ["linear_layers"]


def linear_layers(sizes: list[int], generator: torch.Generator) -> nn.ModuleList:
    """Linear layers from each size to the next, with torch's usual first weights, drawn from `generator`."""
    return nn.ModuleList(_linear(inputs, outputs, generator) for inputs, outputs in zip(sizes, sizes[1:], strict=False))


def _linear(inputs: int, outputs: int, generator: torch.Generator) -> nn.Linear:
    layer = nn.Linear(inputs, outputs, device="meta", dtype=torch.float32).to_empty(device="cpu")
    bound = 1 / math.sqrt(inputs)
    for parameter in layer.parameters():
        nn.init.uniform_(parameter, -bound, bound, generator=generator)
    return layer
