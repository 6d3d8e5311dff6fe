"""Checks of tensors that users give where nothing else will do."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from steinscope.errors import InputError, first_line

__all__ = ["check_coordinates", "check_numbers", "check_tensor"]


def check_tensor(name: str, value: Any, dtype: torch.dtype | None = None) -> Tensor:
    """A tensor whose numbers can be computed with.

    Arguments:
        name: What the user calls it.
        value: What came.
        dtype: The type that it must have; by default any floating type.

    Example:
        >>> check_tensor("images", torch.zeros(2), torch.uint8)
        Traceback (most recent call last):
        steinscope.errors.InputError: images: expected a tensor of uint8, got a tensor of float32
    """
    wanted = "a floating type" if dtype is None else _short(dtype)
    if not isinstance(value, Tensor):
        raise InputError(name, f"expected a tensor of {wanted}, got an object of type {type(value).__name__}")
    if value.layout != torch.strided or value.is_quantized or value.device.type == "meta":
        raise InputError(name, f"expected a dense tensor, got one of layout {value.layout} on {value.device}")
    if value.dtype != dtype if dtype is not None else not value.is_floating_point():
        raise InputError(name, f"expected a tensor of {wanted}, got a tensor of {_short(value.dtype)}")
    return value


def check_numbers(name: str, value: Any) -> Tensor:
    """Finite numbers as a tensor, without a graph: of their own floating type if they have one, otherwise float32.

    Arguments:
        name: What the user calls them.
        value: What came: a tensor, an array, a list or a number.

    Example:
        >>> check_numbers("mean", [1, 2])
        tensor([1., 2.])
    """
    try:
        # The type of lists is not that of `torch.set_default_dtype`.
        dtype = None if isinstance(value, Tensor | np.ndarray) else torch.float32
        tensor = torch.as_tensor(value, dtype=dtype).detach()
    except (RuntimeError, TypeError, ValueError) as error:
        raise InputError(name, f"expected numbers, got {type(value).__name__} ({first_line(error)})") from error
    if tensor.is_complex() or tensor.is_meta:
        raise InputError(name, f"expected real numbers, got a tensor of {_short(tensor.dtype)} on {tensor.device}")
    tensor = tensor if tensor.is_floating_point() else tensor.float()
    if not bool(tensor.isfinite().all()):
        raise InputError(name, f"expected finite numbers, got {value}")
    return tensor


def check_coordinates(x: Any, dim: int, what: str = "this critic") -> Tensor:
    """Points as vectors of `dim` coordinates, or an `InputError` that says what takes them."""
    flat = check_tensor("x", x)
    flat = flat.reshape(len(flat), -1) if flat.ndim else flat
    if flat.ndim == 0 or flat.shape[1] != dim:
        came = f"{flat.shape[1]}" if flat.ndim else "a single number"
        raise InputError("x", f"{what} takes points of {dim} coordinate{'s' if dim != 1 else ''}, got {came}")
    return flat


def _short(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
