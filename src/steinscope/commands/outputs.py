"""What commands print and write."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from steinscope.errors import InputError
from steinscope.support.files import check_directory, csv_text, json_ready, write_output

__all__ = ["check_output", "json_text", "write_csv", "write_output"]


def check_output(path: Path | None, option: str, suffix: str) -> None:
    """Say before the work starts that a file could not be written after it."""
    if path is None:
        return
    if path.is_dir():
        raise InputError(option, f"{path} is a directory, expected the name of a {suffix} file")
    if path.suffix.lower() != suffix:
        raise InputError(option, f"expected a name that ends in {suffix}, got {path.name}")
    parent = next(parent for parent in path.parents if parent.exists())
    if not parent.is_dir():
        raise InputError(option, f"{parent} is a file, so {path} cannot be written")
    check_directory(parent, option)


def json_text(value: Any) -> str:
    """`value` as JSON, in which a number that is not finite is null."""
    return json.dumps(json_ready(value), indent=2, allow_nan=False, ensure_ascii=False)


def write_csv(path: Path, rows: Sequence[Mapping[str, Any]], option: str) -> None:
    """Write rows as CSV, with a line of names above."""
    write_output(path, csv_text(rows), option)
