"""What the experiments on images share: images as logits, training with checkpoints, and grids of samples."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from steinscope.critics.mlp import MLP
from steinscope.data.images import from_logits, load_images, synthetic_images, to_logits
from steinscope.errors import InputError
from steinscope.objectives.learned_stein import LearnedStein
from steinscope.plots import save_image_grid
from steinscope.support.randomness import normal_rows
from steinscope.training.checkpoint import load_checkpoint
from steinscope.training.driver import train

__all__ = ["SETTINGS", "SMOKE_SETTINGS", "fresh_logits", "restore", "save_grid", "take_images", "train_by_lsd"]

Draw = Callable[[int, torch.Generator], Tensor]
SYNTHETIC = "synthetic"
# Settings of models trained on images, and of the critic that judges them afterwards.
SETTINGS: dict[str, Any] = {
    "data": ["mnist", "fashion-mnist"],
    "size": 28,
    "train_images": None,
    "look_images": 5000,
    "test_images": None,
    "width": 1000,
    "batch_size": 128,
    # "default" is the critic of `LearnedStein()`, "field" the paper's, which the next four settings are for.
    "critic": "default",
    "l2": 10.0,
    "critic_steps": 5,
    "shrinkage": 1.0,
    "critic_lr": None,
    "lr_decay": True,
    "noise": None,
    "samples": 64,
    "judge_steps": 620,
}
SMOKE_SETTINGS: dict[str, Any] = {
    "data": [SYNTHETIC],
    "size": 8,
    "train_images": 300,
    "look_images": 300,
    "test_images": 300,
    "width": 16,
    "batch_size": 32,
    "samples": 9,
    "judge_steps": 10,
}


def take_images(data: str, split: str, count: int | None, size: int = 28) -> Tensor:
    """The first images of a data set, or made-up ones of that size under the name "synthetic"."""
    if data == SYNTHETIC:
        return synthetic_images(count or 1000, size, seed=0 if split == "train" else 1)
    images = load_images(data, split)  # pyright: ignore[reportArgumentType]
    return images if count is None else images[:count]


def fresh_logits(images: Tensor, flat: bool = False, smoothing: float = 0.0) -> Draw:
    """A function that draws images as logits, with new noise on their pixels each time.

    Arguments:
        images: The images to draw from.
        flat: Whether each image becomes one row.
        smoothing: The standard deviation of Gaussian noise that is added to the logits.
    """

    def draw(n: int, generator: torch.Generator) -> Tensor:
        index = torch.randint(len(images), (n,), generator=generator)
        logits = to_logits(images[index], seed=generator)
        if smoothing:
            logits = logits + smoothing * normal_rows(logits, generator)
        return logits.flatten(1) if flat else logits

    return draw


def train_by_lsd(model: nn.Module, data: str, settings: Mapping[str, Any], directory: Path, **options: Any) -> None:
    """Train a model on the images of a data set as the settings say, with checkpoints in a directory.

    Arguments:
        model: The model.
        data: The name of the data set.
        settings: Those of the experiment.
        directory: Where the checkpoints go. A run that is there is resumed.
        options: Further options of `train`.
    """
    images = take_images(data, "train", settings["train_images"], settings["size"])
    objective = LearnedStein()
    if settings["critic"] == "field":
        objective = LearnedStein(
            MLP(settings["size"] ** 2, settings["width"]),
            l2=settings["l2"],
            critic_steps=settings["critic_steps"],
            shrinkage=settings["shrinkage"],
        )
    train(
        model,
        fresh_logits(images, flat=True, smoothing=settings["smoothing"]),
        objective=objective,
        steps=settings["steps"],
        batch_size=settings["batch_size"],
        lr=settings["lr"],
        auxiliary_lr=settings["critic_lr"],
        lr_decay=settings["lr_decay"],
        average=settings["average"],
        noise=settings["noise"],
        checkpoint=directory,
        **options,
    )


def restore(model: nn.Module, directory: Path, step: int | None = None) -> Any:
    """The model with the parameters of a checkpoint, averaged ones where it has them; the newest without a step."""
    found = load_checkpoint(directory, step)
    if found is None:
        raise InputError("out", f"{directory} holds no checkpoint{'' if step is None else f' of step {step}'}")
    model.load_state_dict({**found[1]["model"], **(found[1]["average"] or {})})
    return model


def save_grid(path: Path, logits: Tensor, size: int, columns: int = 8) -> None:
    """Write logits as a grid of images, about as wide as a page."""
    path.parent.mkdir(parents=True, exist_ok=True)
    save_image_grid(
        path, from_logits(logits.reshape(-1, size, size)).numpy(), columns, zoom=max(1, 700 // (columns * (size + 1)))
    )
