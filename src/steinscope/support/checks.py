"""Checks of numbers that users give. Each returns a plain Python number, or says what it expected.

Booleans are not numbers here, and 2.0 is not a count. NumPy's numbers are as good as Python's.
"""

from __future__ import annotations

import math
import numbers
import os
from pathlib import Path
from typing import Any, TypeGuard

from steinscope.errors import InputError

__all__ = [
    "check_choice",
    "check_count",
    "check_depth",
    "check_flag",
    "check_kind",
    "check_level",
    "check_number",
    "check_path",
    "check_sample_size",
    "check_seed",
    "check_steps",
    "check_text",
    "check_width",
]

_MOST_SEED = 2**63 - 1
# More points than this do not fit into memory, and more steps take years: such a number is a slip of the keyboard.
_MOST_POINTS, _MOST_STEPS = 10**8, 10**9
_MOST_WIDTH, _MOST_DEPTH = 2**13, 2**6


def check_number(
    name: str,
    value: Any,
    *,
    over: float | None = None,
    least: float | None = None,
    under: float | None = None,
    most: float | None = None,
) -> float:
    """A finite number within bounds.

    Arguments:
        name: What the user calls it.
        value: What came.
        over: It must be larger than this.
        least: It must be at least this.
        under: It must be smaller than this.
        most: It must be at most this.

    Example:
        >>> check_number("lr", 1, over=0)
        1.0
    """
    # NumPy compares single with double precision in single precision, where a bound may be infinite.
    number = _as_float(value)
    if (
        number is None
        or (over is not None and not number > over)
        or (least is not None and not number >= least)
        or (under is not None and not number < under)
        or (most is not None and not number <= most)
    ):
        raise InputError(name, f"expected {_words(over, least, under, most)}, got {_shown(value)}")
    return number


def _shown(value: Any) -> str:
    """What came, in one line."""
    text = " ".join(repr(value).split())
    return text if len(text) <= 80 else f"{text[:79]}…"


def _as_float(value: Any) -> float | None:
    """A finite number in double precision; None for anything else."""
    if not isinstance(value, numbers.Real) or isinstance(value, bool):
        return None
    try:
        number = float(value)
    except OverflowError:
        # A whole number or fraction that is too large.
        return None
    return number if math.isfinite(number) else None


def _is_whole(value: Any) -> TypeGuard[int]:
    return isinstance(value, numbers.Integral) and not isinstance(value, bool)


def _words(over: float | None, least: float | None, under: float | None, most: float | None) -> str:
    if over is not None and under is not None:
        return f"a number between {over:g} and {under:g}"
    if over is not None:
        return "a positive number" if over == 0 else f"a number above {over:g}"
    upper = f" to {most:g}" if most is not None else f" to below {under:g}" if under is not None else " on"
    return "a finite number" if least is None else f"a number from {least:g}{upper}"


def check_count(name: str, value: Any, least: int = 1, most: int | None = None) -> int:
    """A whole number within bounds.

    Arguments:
        name: What the user calls it.
        value: What came.
        least: It must be at least this.
        most: It must be at most this.

    Example:
        >>> check_count("steps", 10)
        10
    """
    if not _is_whole(value) or value < least or (most is not None and value > most):
        upper = " on" if most is None else f" to {most}"
        raise InputError(name, f"expected a whole number from {least}{upper}, got {_shown(value)}")
    return int(value)


def check_sample_size(name: str, value: Any) -> int:
    """How many points to draw, which must fit into memory."""
    return check_count(name, value, most=_MOST_POINTS)


def check_steps(name: str, value: Any, least: int = 1) -> int:
    """How many steps to take, which must come to an end."""
    return check_count(name, value, least, _MOST_STEPS)


def check_width(name: str, value: Any) -> int:
    """How many units a layer has, whose weights must fit into memory."""
    return check_count(name, value, most=_MOST_WIDTH)


def check_depth(name: str, value: Any) -> int:
    """How many layers a network has."""
    return check_count(name, value, most=_MOST_DEPTH)


def check_level(name: str, value: Any) -> float:
    """A number between 0 and 1, such as the level of a test."""
    return check_number(name, value, over=0, under=1)


def check_seed(name: str, value: Any) -> int:
    """A seed: a whole number from 0 to 2^63 - 1."""
    if not _is_whole(value) or not 0 <= value <= _MOST_SEED:
        raise InputError(name, f"expected a whole number from 0 to 2^63 - 1, got {_shown(value)}")
    return int(value)


def check_flag(name: str, value: Any) -> bool:
    """True or False, and nothing that only counts as one of them."""
    # Also a boolean of NumPy, without importing it.
    if not isinstance(value, bool) and type(value).__name__ not in ("bool", "bool_"):
        raise InputError(name, f"expected True or False, got {_shown(value)}")
    return bool(value)


def check_choice(name: str, value: Any, choices: Any) -> Any:
    """One of several values."""
    if not any(isinstance(value, type(choice)) and value == choice for choice in choices):
        *others, last = (f'"{choice}"' if isinstance(choice, str) else str(choice) for choice in choices)
        expected = f"{', '.join(others)} or {last}" if others else last
        raise InputError(name, f"expected {expected}, got {_shown(value)}")
    return value


def check_kind(name: str, value: Any, kind: type) -> Any:
    """An object of a class of the library."""
    if not isinstance(value, kind):
        came = f"the class {value.__name__}" if isinstance(value, type) else type(value).__name__
        raise InputError(name, f"expected an object of type {kind.__name__}, got {came}")
    return value


def check_text(name: str, value: Any) -> str:
    """What something is called: a text or a path."""
    if not isinstance(value, str | os.PathLike):
        raise InputError(name, f"expected a text, got {_shown(value)}")
    return str(value)


def check_path(name: str, value: Any) -> Path:
    """A place in the file system."""
    if not isinstance(value, str | os.PathLike) or "\0" in os.fspath(value):
        raise InputError(name, f"expected a path, got {_shown(value)}")
    return Path(value)
