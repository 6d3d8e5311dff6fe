"""Models of zuko and Pyro: flows that return their distribution when they are called, and guides.

They are recognised by the names of their classes, so that neither library is imported.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from steinscope.errors import InputError, first_line

__all__ = ["FlowDensity", "as_flow", "is_of", "refuse_guide"]


class FlowDensity(nn.Module):
    """The density of a flow of zuko: a module that returns a distribution when it is called without a context.

    Arguments:
        flow: The flow. Its parameters are those of this module.
    """

    def __init__(self, flow: nn.Module) -> None:
        super().__init__()
        self.flow = flow

    def log_prob(self, x: Tensor) -> Tensor:
        """The log-density at each point."""
        try:
            return self.flow().log_prob(x)
        except Exception as error:
            name = type(self.flow).__name__
            raise InputError(
                "model",
                f"the flow {name} fails at x without a context: {first_line(error)}; if it has one, pass its "
                "distribution, flow(context)",
            ) from error


def as_flow(model: Any) -> FlowDensity | None:
    """The density of a flow of zuko; None for anything else."""
    return FlowDensity(model) if is_of(model, "LazyDistribution", "zuko") else None


def refuse_guide(model: Any) -> None:
    """Say what to pass instead of a guide, which draws samples when it is called and is no density itself."""
    name = type(model).__name__
    if is_of(model, "AutoGuide", "pyro"):
        if callable(getattr(model, "get_posterior", None)):
            instead = "pass guide.get_posterior(), its distribution of unconstrained parameters"
        else:
            instead = "it has no joint distribution; AutoDiagonalNormal, the same family, has: pass its get_posterior()"
        raise InputError("model", f"{name} is a guide of Pyro: {instead}")
    if is_of(model, "AutoGuide", "numpyro"):
        instead = "test its draws against the model by steinscope.bayes.from_numpyro(draws, model)"
        raise InputError("model", f"{name} is a guide of NumPyro: {instead}")


def is_of(model: Any, name: str, library: str) -> bool:
    """Whether the class of an object, or one that it derives from, has this name and is of this library."""
    return any(kind.__name__ == name and kind.__module__.partition(".")[0] == library for kind in type(model).__mro__)
