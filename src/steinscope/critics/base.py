"""Critics: vector fields f with their divergence.

A critic takes points (n, ...) to values of the same shape, and knows the divergence of what it does. In training mode
the divergence may be Hutchinson's estimate where that is cheaper; in evaluation mode it is exact, unless the critic was
told otherwise.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal

import torch
from torch import Tensor, nn

from steinscope.errors import InputError
from steinscope.maps.divergence import value_and_diagonal
from steinscope.shapes import PerPoint, Points, flattened
from steinscope.stein import stein_values
from steinscope.support.checks import check_choice, check_number

__all__ = ["Batches", "Critic", "Trace", "check_trace", "trainable_parameters"]

Trace = Literal["auto", "exact", "hutchinson"]


Batches = Iterable[tuple[Tensor, Tensor]]


class Critic(nn.Module, ABC):
    """A vector field with its divergence. It says itself how it is fitted: solved in closed form, or trained."""

    @property
    def is_solvable(self) -> bool:
        """Whether `solve` sets the critic's parameters in closed form. All others are trained."""
        return False

    def solve(self, batches: Batches, l2: float = 0.5, ridge: float = 1e-6) -> None:
        r"""Set the parameters to the minimiser of $\lambda E\|f\|^2 - E[s \cdot f + \nabla \cdot f]$.

        Arguments:
            batches: Pairs of points and scores.
            l2: The penalty λ.
            ridge: Added to the diagonal of $E\,\varphi\varphi^\top$, as a share of its mean diagonal entry.
        """
        check_number("l2", l2, over=0)
        for _ in self.solve_path(batches, l2, [check_number("ridge", ridge, least=0)]):
            pass

    def solve_path(self, batches: Batches, l2: float, ridges: Sequence[float]) -> Iterator[float]:
        """Solve for several ridges from one pass over the points: the critic is that of the ridge just yielded."""
        raise InputError("critic", f"{type(self).__name__} is trained, not solved; use fit_critic")

    @abstractmethod
    def forward(self, x: Points) -> Points:
        """The value f(x) at each point. Dropout is never applied here."""

    @abstractmethod
    def value_and_divergence(self, x: Points, generator: torch.Generator | None = None) -> tuple[Points, PerPoint]:
        """f(x) and ∇·f(x) at each point, differentiable in the critic's parameters.

        Arguments:
            x: The points.
            generator: The source of dropout and probes; the library's own generator if none is given.
        """

    def value_and_diagonal(self, x: Points) -> tuple[Points, Points]:
        """f(x) and ∂f_i/∂x_i for each coordinate, exact and without dropout. One backward pass for each coordinate."""
        return value_and_diagonal(self, x)

    def stein(self, x: Points, score: Points, generator: torch.Generator | None = None) -> tuple[PerPoint, PerPoint]:
        """The Stein value and the penalised squared norm at each point: all that an objective looks at."""
        f, div = self.value_and_divergence(x, generator)
        flat = flattened(f)
        return stein_values(score, f, div), torch.linalg.vecdot(flat, flat)


def trainable_parameters(critic: nn.Module) -> list[nn.Parameter]:
    """The parameters of a critic that steps change, or an `InputError` where there are none."""
    found = [parameter for parameter in critic.parameters() if parameter.requires_grad]
    if not found:
        raise InputError("critic", "it has no parameters to train")
    return found


def check_trace(trace: Any) -> Trace:
    """One of the ways to compute a divergence."""
    return check_choice("trace", trace, ("auto", "exact", "hutchinson"))
