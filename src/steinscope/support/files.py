"""Write files as a whole or not at all, JSON that knows whether it was changed, and tables as text."""

from __future__ import annotations

import csv
import fcntl
import hashlib
import io
import json
import math
import os
import re
import secrets
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

from steinscope.errors import InputError

__all__ = [
    "check_directory",
    "csv_text",
    "json_ready",
    "read_sealed",
    "remove_leftovers",
    "sealed_json",
    "write_file",
    "write_output",
]

_TEMPORARY = re.compile(r"\.steinscope-[0-9a-f]{16}\.tmp")
_CHECKSUM = "checksum"


def write_file(path: Path, content: bytes) -> None:
    """Write a file so that it is either there as a whole or not at all, even if the machine stops.

    The content goes to a new file beside it, whose name cannot be guessed, and which then takes its place. Threads and
    processes may write one path at once: each reader sees what one of them wrote. What a killed process has left in the
    directory is removed.
    """
    remove_leftovers(path.parent)
    temporary, file = _open_temporary(path.parent)
    try:
        with file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
            temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _open_temporary(directory: Path) -> tuple[Path, BinaryIO]:
    """A new file that is locked while it is written, so that others can tell it from what a killed process has left."""
    while True:
        path = directory / f".steinscope-{secrets.token_hex(8)}.tmp"
        # Exclusive: a link of that name is not followed. The permissions are those of any new file.
        file = path.open("xb")
        try:
            with suppress(OSError):  # on a file system without locks nothing is taken for a leftover
                fcntl.flock(file, fcntl.LOCK_EX)
            # Before it was locked another process may have taken it for a leftover.
            if os.fstat(file.fileno()).st_nlink:
                return path, file
        except BaseException:
            file.close()
            path.unlink(missing_ok=True)
            raise
        file.close()


def write_output(path: Path, content: str | bytes, name: str) -> None:
    """Write a file that the user has named. Its directory is made if it is not there.

    Arguments:
        path: The file.
        content: Text or bytes.
        name: What the user calls it, for messages.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_file(path, content if isinstance(content, bytes) else content.encode())
    except OSError as error:
        raise InputError(name, f"cannot write {path}: {error.strerror or error}") from None


def remove_leftovers(directory: Path) -> None:
    """Remove temporary files of processes that were killed while they wrote into a directory."""
    for name in os.listdir(directory):
        if _TEMPORARY.fullmatch(name):
            # It may be gone by now, belong to another user, or be locked by a process that is writing it.
            with suppress(OSError):
                _remove_unlocked(directory / name)


def _remove_unlocked(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        path.unlink()
    finally:
        os.close(descriptor)


def check_directory(path: Path | None, name: str) -> None:
    """Say before the work starts that a directory could not be made, or nothing could be written into it.

    Arguments:
        path: The directory, which need not be there; None where nothing is to be written.
        name: What the user calls it.
    """
    if path is None:
        return
    nearest = next(place for place in (path, *path.parents) if place.exists() or place.is_symlink())
    if not nearest.is_dir():
        raise InputError(name, f"{nearest} is a file, expected a directory")
    if not os.access(nearest, os.W_OK | os.X_OK):
        raise InputError(name, f"nothing can be written into {nearest}: permission denied")


def json_ready(value: Any) -> Any:
    """Numbers, texts, lists and dictionaries with None for each number that JSON does not have.

    Example:
        >>> json_ready({"mean": [0.5, float("nan")]})
        {'mean': [0.5, None]}
    """
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: json_ready(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [json_ready(item) for item in value]
    return value


def sealed_json(record: Mapping[str, Any]) -> bytes:
    """A record as JSON with a checksum of its values.

    Example:
        >>> read_sealed(sealed_json({"steps": 10}))
        {'steps': 10}
    """
    return json.dumps({**record, _CHECKSUM: _checksum(record)}, indent=2).encode()


def read_sealed(content: bytes) -> dict[str, Any]:
    """The record in what `sealed_json` has made; a ValueError where it is something else, or a value has changed."""
    try:
        record = json.loads(content)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if not isinstance(record, dict) or _CHECKSUM not in record:
        raise ValueError("it has no checksum")
    checksum = record.pop(_CHECKSUM)
    if checksum != _checksum(record):
        raise ValueError("its checksum is wrong")
    return record


def _checksum(record: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(record, sort_keys=True).encode()).hexdigest()


def csv_text(rows: Sequence[Mapping[str, Any]]) -> str:
    """Rows with the same keys as CSV, with a line of names above."""
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()
