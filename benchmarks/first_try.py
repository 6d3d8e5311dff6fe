"""The first try of a new user: `train` with its defaults and a network of one's own on tables of scikit-learn.

`python -m benchmarks.first_try` prints score matching at held-out points, smaller is better, beside that of the
Gaussian of the sample covariance. It needs scikit-learn.
"""

from __future__ import annotations

from argparse import ArgumentParser
from importlib import import_module

import numpy as np
import torch
from torch import Tensor, nn

from steinscope import train
from steinscope.models import Gaussian
from steinscope.objectives import score_matching

TABLES = {"digits": "load_digits", "wine": "load_wine", "iris": "load_iris", "breast cancer": "load_breast_cancer"}
DIGITS_TO_LEARN = 1400
STEPS = 1000


class Network(nn.Module):
    """A network times a standard normal."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(dim, 128), nn.SiLU(), nn.Linear(128, 128), nn.SiLU(), nn.Linear(128, 1))

    def log_prob(self, x: Tensor) -> Tensor:
        return self.net(x)[:, 0] - 0.5 * x.square().sum(1)


def split_table(name: str, seed: int) -> tuple[Tensor, Tensor]:
    """Points to learn from and points to judge by, standardised; digits with uniform noise, because they are whole."""
    generator = np.random.default_rng(seed)
    rows = getattr(import_module("sklearn.datasets"), TABLES[name])().data.astype(float)
    if name == "digits":
        rows = rows + generator.random(rows.shape)
    rows = rows[generator.permutation(len(rows))]
    count = DIGITS_TO_LEARN if name == "digits" else int(0.8 * len(rows))
    known = rows[:count]
    standard = torch.tensor((rows - known.mean(0)) / known.std(0), dtype=torch.float32)
    return standard[:count], standard[count:]


def main() -> None:
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=10_000, help="the first seed")
    parser.add_argument("--splits", type=int, default=5)
    arguments = parser.parse_args()
    for name in TABLES:
        found: dict[str, list[float]] = {"the Gaussian": [], "train": []}
        for seed in range(arguments.seed, arguments.seed + arguments.splits):
            known, held_out = split_table(name, seed)
            torch.manual_seed(seed)
            model = Network(known.shape[1])
            train(model, known, steps=STEPS, seed=seed, progress=False)
            gaussian = Gaussian(known.mean(0), torch.cov(known.T))
            found["the Gaussian"].append(score_matching(held_out, gaussian).value)
            found["train"].append(score_matching(held_out, model).value)
        for who, values in found.items():
            print(f"{name:<14} {who:<13} " + ", ".join(f"{value:.0f}" for value in values), flush=True)


if __name__ == "__main__":
    main()
