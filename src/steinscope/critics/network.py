"""Any network as a critic."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from steinscope.critics.base import Critic, Trace, check_trace
from steinscope.errors import InputError
from steinscope.maps.divergence import value_and_exact, value_and_hutchinson
from steinscope.shapes import PerPoint, Points

__all__ = ["Module", "as_critic"]


class Module(Critic):
    """Any network as a critic; its divergence comes from autograd.

    Arguments:
        net: A module or function that takes points (n, ...) to values of the same shape, each row on its own.
        trace: `"exact"`, `"hutchinson"` (one Gaussian probe), or `"auto"`: Hutchinson in training from three
            coordinates on, otherwise exact.
    """

    def __init__(self, net: Callable[[Tensor], Tensor], trace: Trace = "auto") -> None:
        super().__init__()
        if not callable(net):
            raise InputError("net", f"expected a function or module, got {type(net).__name__}")
        self.net, self.trace = net, check_trace(trace)

    def forward(self, x: Points) -> Points:
        """The value f(x) at each point."""
        return self.net(x)

    def value_and_divergence(self, x: Points, generator: torch.Generator | None = None) -> tuple[Points, PerPoint]:
        """f(x) and ∇·f(x) at each point."""
        is_exact = self.trace == "exact" or (self.trace == "auto" and (not self.training or x[0].numel() <= 2))
        if is_exact:
            return value_and_exact(self.net, x)
        return value_and_hutchinson(self.net, x, generator=generator)


def as_critic(critic: Any) -> Critic:
    """`critic` itself, or a plain network wrapped as one."""
    if isinstance(critic, Critic):
        return critic
    if isinstance(critic, nn.Module):
        return Module(critic)
    raise InputError(
        "critic",
        "expected a critic of steinscope.critics or a torch.nn.Module from points to vectors, "
        f"got {type(critic).__name__}",
    )
