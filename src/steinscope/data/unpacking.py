"""How far a compressed file may unpack."""

from __future__ import annotations

from pathlib import Path

from steinscope.errors import InputError

__all__ = ["check_unpacked"]

_FREE_BYTES = 2**28
_MOST_RATIO = 200


def check_unpacked(name: str, path: Path, *, unpacked: int, packed: int) -> None:
    """Refuse a file that says of itself that it unpacks to far more than it is, before any of it is unpacked.

    Arrays of measurements shrink to a half or a tenth, rarely to a hundredth. What shrinks to less than a two-hundredth
    and is large is empty, or made to fill the memory.

    Arguments:
        name: What the user calls it, for messages.
        path: The file.
        unpacked: How many bytes it declares.
        packed: How many bytes it has.
    """
    if unpacked > max(_FREE_BYTES, _MOST_RATIO * packed):
        raise InputError(
            name,
            f"{path} would unpack from {packed} to {unpacked} bytes, more than {_MOST_RATIO} times as many; "
            "write it without compression if that is right",
        )
