"""Settings of an object as plain numbers and texts, which a checkpoint can save and compare."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import is_dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

__all__ = ["digest_tensors", "plain_settings"]


def plain_settings(thing: Any, leave_out: Iterable[str] = ()) -> dict[str, Any]:
    """The public attributes of an object, flat: those of a module or dataclass that it holds have names with dots.

    Parameters and buffers of modules are left out: they change in training. Arrays are told apart by their digests,
    functions and other objects by their names and types.

    Arguments:
        thing: The object.
        leave_out: Attributes that are no settings.

    Example:
        >>> plain_settings(nn.Dropout(0.5))
        {'p': 0.5, 'inplace': False}
    """
    found: dict[str, Any] = {}
    for name, value in vars(thing).items():
        is_mode = isinstance(thing, nn.Module) and name == "training"
        if not name.startswith("_") and name not in leave_out and not is_mode:
            found |= _flat(name, value)
    if isinstance(thing, nn.Module):
        for name, child in thing.named_children():
            found |= _flat(name, child)
    return found


def _flat(name: str, value: Any) -> dict[str, Any]:
    if value is None or isinstance(value, bool | int | float | str):
        return {name: value}
    if isinstance(value, np.generic):
        return {name: value.item()}
    if isinstance(value, Tensor | np.ndarray):
        tensor = torch.as_tensor(value)
        return {name: f"array {tuple(tensor.shape)} {digest_tensors([tensor])[:16]}"}
    if isinstance(value, nn.Module) or (is_dataclass(value) and not isinstance(value, type)):
        return {name: type(value).__name__, **{f"{name}.{key}": item for key, item in plain_settings(value).items()}}
    if isinstance(value, list | tuple | dict):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        parts = [_flat(f"{name}.{key}", item) for key, item in items]
        return {
            name: f"{type(value).__name__} of {len(value)}",
            **{key: item for part in parts for key, item in part.items()},
        }
    return {name: getattr(value, "__qualname__", type(value).__qualname__)}


def digest_tensors(tensors: Iterable[Tensor]) -> str:
    """A digest of the bytes of tensors, one after the other: the same however the rows are divided among them."""
    digest = hashlib.sha256()
    for tensor in tensors:
        digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()
