"""Kernel densities of scikit-learn with Gaussian kernels, as sums over all of their points.

What scikit-learn computes through its tree is off by as much as a hundred at points far from others, because the tree
adds and subtracts bounds. Differences of such values are no scores.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from steinscope.errors import InputError
from steinscope.flows import is_of
from steinscope.shapes import flattened

__all__ = ["KernelSum", "as_kernel_sum"]

_BLOCK_NUMBERS = 2**21


class KernelSum:
    r"""The log-density $\log \sum_i w_i \exp(-\|x - y_i\|^2 / 2h^2)$, normalised, and its gradient, in float64.

    Arguments:
        points: The points y.
        weights: Their weights, which add up to 1.
        bandwidth: The standard deviation h of the kernels.

    Example:
        >>> density = KernelSum(torch.zeros(1, 2), torch.ones(1), 2.0)
        >>> density.score(torch.tensor([[4.0, 0.0]]))
        tensor([[-1., 0.]])
    """

    def __init__(self, points: Tensor, weights: Tensor, bandwidth: float) -> None:
        self.centre = points.double().mean(0)
        self.points, self.bandwidth = points.double() - self.centre, bandwidth
        dim = points.shape[1]
        self.log_weights = weights.double().log() - 0.5 * dim * math.log(2 * math.pi * bandwidth**2)
        self.squares = self.points.square().sum(1)

    def log_prob(self, x: Tensor) -> Tensor:
        """The log-density at each point."""
        return torch.cat([self._terms(part).logsumexp(1) for part in self._blocks(x)]).to(x)

    def score(self, x: Tensor) -> Tensor:
        """Its gradient: the mean of the points, weighted by their parts of the density, minus x, over h²."""
        found = [self._terms(part).softmax(1) @ self.points - part for part in self._blocks(x)]
        return (torch.cat(found) / self.bandwidth**2).to(x).view(x.shape)

    def _blocks(self, x: Tensor) -> tuple[Tensor, ...]:
        flat = flattened(x).double().cpu()
        if flat.shape[1] != self.points.shape[1]:
            expected = f"points of {self.points.shape[1]} coordinates, as those that it was fitted to"
            raise InputError("model", f"expected {expected}, got {flat.shape[1]}")
        return (flat - self.centre).split(max(1, _BLOCK_NUMBERS // len(self.points)))

    def _terms(self, x: Tensor) -> Tensor:
        """The logarithm of the part of each kernel."""
        distance = x.square().sum(1, keepdim=True) - 2 * x @ self.points.T + self.squares
        return self.log_weights - distance / (2 * self.bandwidth**2)


def as_kernel_sum(model: Any) -> KernelSum | None:
    """A fitted `KernelDensity` of scikit-learn with Gaussian kernels and Euclidean distances; None for all else."""
    if not is_of(model, "KernelDensity", "sklearn") or not hasattr(model, "tree_"):
        return None
    if model.kernel != "gaussian" or model.metric != "euclidean":
        return None
    points = torch.from_numpy(np.array(model.tree_.data, dtype=np.float64))
    given = model.tree_.sample_weight
    weights = torch.from_numpy(np.ones(len(points)) if given is None else np.array(given, dtype=np.float64))
    return KernelSum(points, weights / weights.sum(), float(model.bandwidth_))
