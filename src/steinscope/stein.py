r"""Stein values, and what a critic is trained to maximise.

For a critic f and a model with score $s_q = \nabla \log q$ the Stein value of a point is
$s_q(x) \cdot f(x) + \nabla \cdot f(x)$. Its mean under the data is zero for every f when the model is right.
Everything in this file works on vectors of n numbers and does not know where they came from.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from steinscope.errors import InputError, first_line
from steinscope.shapes import PerPoint, Scalar, flattened
from steinscope.support.tensors import check_tensor

__all__ = ["LSD", "Objective", "PenalisedLSD", "Power", "mean_and_std", "objective_value", "penalty_of", "stein_values"]

Objective = Callable[[Tensor, Tensor], Tensor]
"""What a critic maximises: a function of the Stein values and of the squared norms of f at the same points."""


def stein_values(
    score: Float[Tensor, "n *shape"], f: Float[Tensor, "n *shape"], div: Float[Tensor, " n"]
) -> Float[Tensor, " n"]:
    r"""The Stein values $s_q(x) \cdot f(x) + \nabla \cdot f(x)$, one for each point.

    Example:
        >>> stein_values(torch.tensor([[1.0, 2.0]]), torch.tensor([[3.0, 4.0]]), torch.tensor([0.5]))
        tensor([11.5000])
    """
    for name, value in (("score", score), ("f", f), ("div", div)):
        check_tensor(name, value)
    if score.shape != f.shape:
        raise InputError("f", f"expected the shape of score, {tuple(score.shape)}, got {tuple(f.shape)}")
    if div.shape != f.shape[:1]:
        raise InputError("div", f"expected one number for each of the {len(f)} points, got shape {tuple(div.shape)}")
    return torch.linalg.vecdot(flattened(score), flattened(f)) + div


@dataclass(frozen=True)
class LSD:
    """The mean Stein value. Without a penalty it has no maximum: use it to look, not to train."""

    def __call__(self, values: PerPoint, squared_norm: PerPoint) -> Tensor:
        return values.mean()


@dataclass(frozen=True)
class PenalisedLSD:
    r"""The mean Stein value minus $\lambda E\|f\|^2$.

    The best critic is $(s_q - s_p) / 2\lambda$, and its mean Stein value is $E\|s_q - s_p\|^2 / 2\lambda$.
    """

    l2: float = 0.5

    def __call__(self, values: PerPoint, squared_norm: PerPoint) -> Tensor:
        return values.mean() - self.l2 * squared_norm.mean()


@dataclass(frozen=True)
class Power:
    r"""The power of the test that the critic makes: mean over standard deviation of the Stein values.

    The ratio does not depend on the scale of f; the penalty $\lambda E\|f\|^2$ only fixes that scale.
    """

    l2: float = 0.5
    epsilon: float = 1e-6

    def __call__(self, values: PerPoint, squared_norm: PerPoint) -> Tensor:
        return values.mean() / (values.std() + self.epsilon) - self.l2 * squared_norm.mean()


def objective_value(objective: Objective, values: PerPoint, squared_norm: PerPoint) -> Scalar:
    """What is maximised, or an `InputError` where an objective of the user's does not give one number."""
    try:
        value = objective(values, squared_norm)
    except Exception as error:
        raise InputError("objective", f"failed at the Stein values: {first_line(error)}") from error
    if not isinstance(value, Tensor) or value.ndim != 0 or not value.requires_grad:
        came = f"a tensor of shape {tuple(value.shape)}" if isinstance(value, Tensor) else type(value).__name__
        raise InputError("objective", f"expected one number made of the values by torch operations, got {came}")
    return value


def penalty_of(objective: Objective) -> float | None:
    """The penalty λ of an objective, its `l2`; None where it has none."""
    l2 = getattr(objective, "l2", None)
    return None if l2 is None else float(l2)


def mean_and_std(values: PerPoint) -> tuple[float, float]:
    """Mean and sample standard deviation, summed in float64."""
    values = values.detach().double()
    if len(values) < 2:
        return float(values.mean()), math.nan
    return float(values.mean()), float(values.std())
