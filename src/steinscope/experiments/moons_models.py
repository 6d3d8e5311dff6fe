"""Models of two moons that the demo ranks and an experiment measures."""

from __future__ import annotations

import copy
from typing import Any

import torch

from steinscope.models.ebm import EBM, Perceptron
from steinscope.models.gaussian import Gaussian
from steinscope.training.driver import train

__all__ = ["LEAST_STEPS", "fit_models", "make_ebm", "train_ebm"]

LEAST_STEPS = 10
_WIDTH = 100
_STEEPNESS = 3.0


def fit_models(x: torch.Tensor) -> dict[str, Any]:
    """The models that need no training."""
    return {"one Gaussian": Gaussian(x.mean(0), torch.cov(x.T)), "two Gaussians": _two_gaussians()}


def make_ebm(x: torch.Tensor) -> EBM:
    """The energy-based model before it is trained."""
    network = Perceptron(2, _WIDTH)
    with torch.no_grad():
        # Steeper functions of the plane: the moons are thin, and a first layer of small weights learns that slowly.
        for parameter in network.layers[0].parameters():
            parameter.mul_(_STEEPNESS)
    return EBM(network, 2, mean=x.mean(0), std=x.std(0) + 1)


def train_ebm(x: torch.Tensor, steps: int) -> dict[str, Any]:
    """An energy-based model after a tenth of its training, and at the end."""
    early: dict[str, Any] = {}

    def keep(step: int, model: torch.nn.Module, row: dict[str, float]) -> None:
        if step <= steps / 10:
            early["early EBM"] = copy.deepcopy(model)

    result = train(
        make_ebm(x),
        x,
        steps=steps,
        batch_size=256,
        average=0.99,
        # The moons overlap while there is noise, so that the model learns how much mass each of them has.
        noise=0.5,
        log_every=steps // LEAST_STEPS,
        callbacks=[keep],
    )
    return {**early, "trained EBM": result.averaged}


def _two_gaussians() -> Any:
    family = torch.distributions
    centres = torch.tensor([[-1.0, 0.75], [1.0, -0.75]])
    spread = torch.tensor([[1.45, 0.65], [1.45, 0.65]])
    return family.MixtureSameFamily(
        family.Categorical(torch.ones(2)), family.Independent(family.Normal(centres, spread), 1)
    )
