"""Models of images that one experiment trains and another judges."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from steinscope.experiments.image_data import restore
from steinscope.models.glow import Glow
from steinscope.models.rbm import RBM
from steinscope.support.randomness import make_generator

__all__ = ["FLOW", "FLOWS", "RBMS", "load_flow", "load_rbm", "make_flow", "make_rbm"]

# Where the runs of flow-eval and rbm-images keep their checkpoints.
FLOW, RBMS = "flow", "models"

FLOWS: dict[str, dict[str, Any]] = {
    "smoke": {"shape": [8, 8], "squeezes": [True, False], "blocks": 2, "channels": 8},
    "quick": {"shape": [28, 28], "squeezes": [True, True, False], "blocks": 4, "channels": 64},
    "paper": {"shape": [28, 28], "squeezes": [True, True, False], "blocks": 4, "channels": 128},
}


def make_flow(settings: Mapping[str, Any]) -> Glow:
    """The flow of these settings, untrained."""
    return Glow(
        settings["shape"], squeezes=settings["squeezes"], blocks=settings["blocks"], channels=settings["channels"]
    )


def load_flow(directory: str | Path, scale: str) -> Glow:
    """The trained flow of a run of flow-eval."""
    return restore(make_flow(FLOWS[scale]), Path(directory) / FLOW)


def make_rbm(dim: int, hidden: int, mean: torch.Tensor | None = None) -> RBM:
    """Small random weights, and visible offsets at the data's mean."""
    weights = 0.01 * torch.randn(dim, hidden, generator=make_generator(0))
    return RBM(weights, torch.zeros(dim) if mean is None else mean, torch.zeros(hidden))


def load_rbm(directory: str | Path, data: str, dim: int, hidden: int) -> RBM:
    """The trained RBM of a data set, from the directory of a run of rbm-images."""
    return restore(make_rbm(dim, hidden), Path(directory) / RBMS / data)
