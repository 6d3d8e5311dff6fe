"""Points as reports draw them."""

from __future__ import annotations

from typing import Any

import numpy as np

from steinscope.points import check_rows, read_rows

__all__ = ["flat_rows"]


def flat_rows(value: Any, name: str) -> np.ndarray:
    """Points as vectors, in float64, or an `InputError` that names them."""
    rows = check_rows(value, name)
    return read_rows(rows, slice(None)).double().cpu().numpy().reshape(len(rows), -1)
