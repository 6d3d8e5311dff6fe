"""Where random numbers come from: explicit generators, never the global random state."""

from __future__ import annotations

import torch

from steinscope.errors import InputError

__all__ = ["Seed", "default_generator", "make_generator"]

Seed = int | torch.Generator

_defaults: dict[torch.device, torch.Generator] = {}


def make_generator(seed: Seed, device: torch.device | str = "cpu") -> torch.Generator:
    """A generator on `device`: a new one for a whole number, the same object for a generator that is already there.

    A generator of another device seeds the new one with its next number.
    """
    device = torch.device(device)
    if isinstance(seed, torch.Generator):
        if seed.device.type == device.type:
            return seed
        seed = int(torch.randint(2**62, (), generator=seed, device=seed.device))
    if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < 2**63:
        raise InputError(f"seed: expected a whole number from 0 to 2^63 - 1 or a torch.Generator, got {seed!r}")
    return torch.Generator(device=device).manual_seed(seed)


def default_generator(device: torch.device | str) -> torch.Generator:
    """The library's own generator for calls that give none. It is apart from torch's global random state."""
    device = torch.device(device)
    if device not in _defaults:
        _defaults[device] = make_generator(0, device)
    return _defaults[device]
