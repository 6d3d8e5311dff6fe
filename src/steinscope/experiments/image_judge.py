"""Numbers for samples of images: what a classifier of real images says, and how near samples are to each other.

The classifier sees samples only after it has been trained, so that no model can learn to please it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from steinscope.data.images import DATA_SETS, from_logits, load_images, load_labels
from steinscope.errors import InputError

__all__ = ["Judge", "Verdict", "describe", "make_judge"]

# A sample of which the classifier gives one class so much probability is one that it is sure of.
SURE = 0.9
_CLASSES = 10
_EPOCHS, _BATCH, _RATE, _SEED = 3, 128, 4e-3, 0


@dataclass(frozen=True)
class Verdict:
    """What can be said of a set of images.

    Arguments:
        sure: The share of them of which the classifier is sure.
        entropy: The entropy of their classes in nats; at most log 10 = 2.30.
        near_duplicates: How many of them are nearer to another one than half the median distance between a real image
            and its nearest neighbour among as many real ones.
        nearest: The median distance to the nearest other one, pixels being from 0 to 1.
        nearest_training: The median distance to the nearest training image.
        copies: How many are nearer to a training image than half the median distance from test images to those.
    """

    sure: float
    entropy: float
    near_duplicates: int
    nearest: float
    nearest_training: float
    copies: int


class Judge:
    """A small convolutional network that was trained on real images of a data set.

    Arguments:
        data: The name of the data set, whose images are 28 pixels wide.
        epochs: How often it sees all training images.
    """

    def __init__(self, data: str, epochs: int = _EPOCHS) -> None:
        train, test = (_pixels(load_images(data, split)) for split in ("train", "test"))  # pyright: ignore[reportArgumentType]
        labels, test_labels = (load_labels(data, split) for split in ("train", "test"))  # pyright: ignore[reportArgumentType]
        for images, classes, split in ((train, labels, "train"), (test, test_labels, "test")):
            if len(images) != len(classes):
                raise InputError(data, f"expected as many labels as images, got {len(classes)} ({split})")
        self.training_images, self.test_images = train, test
        # Modules draw from torch's own random state, which is put back.
        with torch.random.fork_rng(devices=[]), torch.enable_grad():
            torch.manual_seed(_SEED)
            self.network = _train(train, labels.long(), epochs)
        self.error = float((self._probabilities(test).argmax(1) != test_labels).double().mean())

    def judge(self, logits: Tensor) -> Verdict:
        """Judge samples.

        Arguments:
            logits: The samples, n by 28 by 28 or n by 784.
        """
        images = _pixels(from_logits(logits.reshape(-1, 28, 28)))
        probabilities = self._probabilities(images)
        share = torch.bincount(probabilities.argmax(1), minlength=_CLASSES).double() / len(images)
        among, real_among = _nearest(images), _nearest(self.test_images[: len(images)])
        known, real_known = (_nearest(part, self.training_images) for part in (images, self.test_images[: len(images)]))
        return Verdict(
            sure=float((probabilities.max(1).values >= SURE).double().mean()),
            entropy=float(-(share * share.clamp_min(1e-300).log()).sum()),
            near_duplicates=int((among < 0.5 * real_among.median()).sum()),
            nearest=float(among.median()),
            nearest_training=float(known.median()),
            copies=int((known < 0.5 * real_known.median()).sum()),
        )

    @torch.no_grad()
    def _probabilities(self, images: Tensor) -> Tensor:
        return torch.cat([self.network(part[:, None]).softmax(1) for part in images.split(1000)])


def make_judge(data: str) -> Judge | None:
    """The judge of a data set; None where there are no labels of its images."""
    if data not in DATA_SETS:
        return None
    try:
        return Judge(data)
    except InputError:
        return None


def describe(verdict: Mapping[str, Any]) -> str:
    """A verdict in words."""
    return (
        f"{verdict['sure']:.0%} sure, entropy of classes {verdict['entropy']:.2f} of {math.log(_CLASSES):.2f}, "
        f"{verdict['near_duplicates']} near-duplicates, {verdict['copies']} copies of training images"
    )


def _pixels(images: Tensor) -> Tensor:
    return images.float() / 255


def _train(images: Tensor, labels: Tensor, epochs: int) -> nn.Module:
    network = nn.Sequential(
        *(nn.Conv2d(1, 24, 5, stride=2), nn.ReLU(), nn.Conv2d(24, 48, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()),
        *(nn.Dropout(0.3), nn.Linear(48 * 25, 128), nn.ReLU(), nn.Dropout(0.3), nn.Linear(128, _CLASSES)),
    )
    optimiser = torch.optim.Adam(network.parameters())
    batches = math.ceil(len(images) / _BATCH)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, _RATE, total_steps=epochs * batches)
    for _ in range(epochs):
        for index in torch.randperm(len(images)).split(_BATCH):
            loss = functional.cross_entropy(network(images[index][:, None]), labels[index])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            schedule.step()
    return network.eval()


def _nearest(images: Tensor, others: Tensor | None = None) -> Tensor:
    """The distance from each image to the nearest of the others, or of the rest of them."""
    flat = images.flatten(1)
    if others is None:
        return torch.cdist(flat, flat).fill_diagonal_(math.inf).amin(1)
    return (
        torch.stack([torch.cdist(flat, part.flatten(1)).min(1).values for part in others.split(10_000)]).min(0).values
    )
