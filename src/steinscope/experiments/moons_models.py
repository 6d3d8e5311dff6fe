"""Models of two moons that the demo ranks and an experiment measures."""

from __future__ import annotations

import copy
from typing import Any

import torch

from steinscope.critics.mlp import MLP
from steinscope.models.ebm import EBM
from steinscope.models.gaussian import Gaussian
from steinscope.objectives.learned_stein import LearnedStein
from steinscope.training.driver import train

__all__ = ["LEAST_STEPS", "fit_models", "make_ebm", "train_ebm"]

LEAST_STEPS = 10
_WIDTH = 100


def fit_models(x: torch.Tensor) -> dict[str, Any]:
    """The models that need no training."""
    return {"one Gaussian": Gaussian(x.mean(0), torch.cov(x.T)), "two Gaussians": _two_gaussians()}


def make_ebm(x: torch.Tensor) -> EBM:
    """The energy-based model before it is trained."""
    return EBM.perceptron(2, _WIDTH, mean=x.mean(0), std=x.std(0) + 1)


def train_ebm(x: torch.Tensor, steps: int) -> dict[str, Any]:
    """An energy-based model halfway through its training, and at the end."""
    halfway: dict[str, Any] = {}

    def keep(step: int, model: torch.nn.Module, row: dict[str, float]) -> None:
        if step <= steps / 2:
            halfway["half-trained EBM"] = copy.deepcopy(model)

    result = train(
        make_ebm(x),
        x,
        objective=LearnedStein(MLP(2, _WIDTH, skip=True)),
        steps=steps,
        batch_size=512,
        lr=4e-3,
        lr_decay=True,
        average=0.99,
        # The moons overlap while there is noise, so that the model learns how much mass each of them has.
        noise=1.0,
        log_every=steps // LEAST_STEPS,
        callbacks=[keep],
    )
    return {**halfway, "trained EBM": result.averaged}


def _two_gaussians() -> Any:
    family = torch.distributions
    centres = torch.tensor([[-1.0, 0.75], [1.0, -0.75]])
    spread = torch.tensor([[1.45, 0.65], [1.45, 0.65]])
    return family.MixtureSameFamily(
        family.Categorical(torch.ones(2)), family.Independent(family.Normal(centres, spread), 1)
    )
