"""Points as reports draw them."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from steinscope.points import check_rows

__all__ = ["flat_rows"]


def flat_rows(value: Any, name: str) -> np.ndarray:
    """Points as vectors, in float64, or an `InputError` that names them."""
    rows = check_rows(value, name)
    return np.asarray(rows.cpu() if isinstance(rows, torch.Tensor) else rows, dtype=np.float64).reshape(len(rows), -1)
