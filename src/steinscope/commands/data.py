"""`steinscope data`."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from steinscope.support.files import check_directory

__all__ = ["data"]


def data(name: Literal["mnist", "fashion-mnist"], /, *, out: Path | None = None, source: str | None = None) -> None:
    """Download a data set, checked against its checksums. A download that was stopped resumes where it was.

    Examples:

        steinscope data mnist

        steinscope data fashion-mnist --out /data

    Parameters
    ----------
    name
        The data set.
    out
        Put it into a subdirectory of this directory; by default the user's cache. STEINSCOPE_DATA names the directory
        that experiments look in first.
    source
        The address of the directory with its files; by default the usual public copy.
    """
    check_directory(out, "out")
    from steinscope.data.downloads import download

    print(download(name, out, source=source))
