"""Write files as a whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["write_file"]


def write_file(path: Path, content: bytes) -> None:
    """Write a file so that it is either there as a whole or not at all, even if the machine stops."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
