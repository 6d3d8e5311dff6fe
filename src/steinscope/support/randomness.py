"""Where random numbers come from: explicit generators, never the global random state."""

from __future__ import annotations

import zlib
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from steinscope.support.checks import check_seed

__all__ = [
    "PartGenerator",
    "Seed",
    "default_generator",
    "derive_generator",
    "make_generator",
    "next_seed",
    "normal_rows",
    "uniform_rows",
]

Seed = int | torch.Generator

_defaults: dict[torch.device, torch.Generator] = {}


def make_generator(seed: Seed, device: torch.device | str = "cpu", *, purpose: str = "") -> torch.Generator:
    """A generator on `device`: a new one for a whole number, the same object for a generator that is already there.

    A whole number is mixed with the purpose. So points drawn with seed 0, by torch or by a model of this library, do
    not share their random numbers with the noise of a method that gets seed 0 too. A generator of another device seeds
    the new one with its next number.
    """
    device = torch.device(device)
    if isinstance(seed, torch.Generator):
        if seed.device.type == device.type:
            return seed
        seed = int(torch.randint(2**62, (), generator=seed, device=seed.device))
    return derive_generator(check_seed("seed", seed), zlib.crc32(purpose.encode()), device=device)


def next_seed(seed: int, number: int) -> int:
    """The seed of that number in the series of a seed, which begins with it. Other series have other numbers."""
    if number == 0:
        return seed
    return int(np.random.SeedSequence((seed, number)).generate_state(1, np.uint64)[0] >> np.uint64(1))


def default_generator(device: torch.device | str) -> torch.Generator:
    """The library's own generator for calls that give none. It is apart from torch's global random state."""
    device = torch.device(device)
    if device not in _defaults:
        _defaults[device] = make_generator(0, device)
    return _defaults[device]


class PartGenerator(torch.Generator):
    """A generator for one part of a batch that several processes share.

    `normal_rows` and `uniform_rows` draw the numbers of the whole batch from it and return those of this part, so that
    the processes together use the same numbers as one process would.
    """

    part: int
    parts: int

    def __new__(cls, part: int, parts: int, device: torch.device | str = "cpu") -> PartGenerator:
        return super().__new__(cls, device=device)  # pyright: ignore[reportCallIssue]

    def __init__(self, part: int, parts: int, device: torch.device | str = "cpu") -> None:
        self.part, self.parts = part, parts


def derive_generator(
    seed: int, *numbers: int, device: torch.device | str = "cpu", part: int = 0, parts: int = 1
) -> torch.Generator:
    """A generator that depends on the seed and on further numbers, such as a step.

    A run that makes one for each step has no random state to save: the step is enough to resume.
    """
    state = np.random.SeedSequence((seed, *numbers)).generate_state(1, np.uint64)
    generator = torch.Generator(device=device) if parts == 1 else PartGenerator(part, parts, device)
    return generator.manual_seed(int(state[0] >> np.uint64(1)))


def normal_rows(like: Tensor, generator: torch.Generator) -> Tensor:
    """Standard normal numbers of the shape of `like`."""
    return _draw(torch.randn, like, generator)


def uniform_rows(like: Tensor, generator: torch.Generator) -> Tensor:
    """Uniform numbers from 0 to 1 of the shape of `like`."""
    return _draw(torch.rand, like, generator)


def _draw(draw: Callable[..., Tensor], like: Tensor, generator: torch.Generator) -> Tensor:
    options = {"generator": generator, "dtype": like.dtype, "device": like.device}
    if not isinstance(generator, PartGenerator):
        return draw(like.shape, **options)
    return draw(generator.parts * len(like), *like.shape[1:], **options)[generator.part :: generator.parts]
