"""Download MNIST and Fashion-MNIST: checked, resumable, and never half there."""

from __future__ import annotations

import hashlib
import os
from http.client import HTTPException
from pathlib import Path
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

from steinscope.data.images import DATA_SETS, cache_directory
from steinscope.errors import DownloadError, InputError
from steinscope.support.checks import check_choice, check_path
from steinscope.support.progress import progress_bar

__all__ = ["download"]

SOURCES = {
    "mnist": "https://ossci-datasets.s3.amazonaws.com/mnist",
    "fashion-mnist": "https://fashion-mnist.s3.eu-central-1.amazonaws.com",
}
SHA256 = {
    "mnist": {
        "train-images-idx3-ubyte.gz": "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
        "train-labels-idx1-ubyte.gz": "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
        "t10k-images-idx3-ubyte.gz": "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
        "t10k-labels-idx1-ubyte.gz": "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
    },
    "fashion-mnist": {
        "train-images-idx3-ubyte.gz": "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
        "train-labels-idx1-ubyte.gz": "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
        "t10k-images-idx3-ubyte.gz": "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
        "t10k-labels-idx1-ubyte.gz": "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
    },
}
_TRIES = 4
_CHUNK = 2**16
_TIMEOUT = 30


def download(
    data_set: str, directory: str | Path | None = None, *, source: str | None = None, progress: bool | None = None
) -> Path:
    """Download a data set, and return its directory.

    A file is downloaded under another name and renamed when its checksum is right. The part of an interrupted
    download that has arrived is kept, and the next call resumes there. Files with the right checksum are left alone.

    Arguments:
        data_set: `"mnist"` or `"fashion-mnist"`.
        directory: Where to put it, in a subdirectory of its name; by default the user's cache.
        source: The address of the directory with its files; by default that of the usual public copy.
        progress: Whether to show a progress bar; by default on a terminal.
    """
    check_choice("data_set", data_set, DATA_SETS)
    if source is not None and not (isinstance(source, str) and _is_address(source)):
        raise InputError("source", f"expected an address such as https://example.org/mnist, got {source!r}")
    target = (cache_directory() if directory is None else check_path("directory", directory)) / data_set
    base = (source or SOURCES[data_set]).rstrip("/")
    for name, checksum in SHA256[data_set].items():
        if not _has_checksum(target / name, checksum):
            _fetch(f"{base}/{name}", target / name, checksum, progress)
    return target


def _is_address(source: str) -> bool:
    try:
        parts = urlsplit(source)
        return bool(parts.scheme and "://" in source and (parts.hostname or parts.scheme == "file")) and parts.port != 0
    except ValueError:
        return False


def _fetch(address: str, target: Path, checksum: str, progress: bool | None) -> None:
    part = target.with_name(f".{target.name}.part")
    reason = "nothing was sent"
    for _ in range(_TRIES):
        try:
            _receive(address, part, target.name, progress)
        except HTTPError as error:
            if error.code in (403, 404, 410):
                raise DownloadError(f"{address}: the server answers {error.code} {error.reason}") from None
            # 416: more has arrived than there is, which only a fresh start can mend.
            if error.code == 416 and not _has_checksum(part, checksum):
                part.unlink(missing_ok=True)
            reason = f"{error.code} {error.reason}"
        except (URLError, HTTPException, OSError, ValueError) as error:
            reason = str(getattr(error, "reason", error)) or type(error).__name__
            continue
        if _has_checksum(part, checksum):
            os.replace(part, target)
            return
        if part.exists():
            reason = f"the file of {part.stat().st_size} bytes has a wrong checksum"
            part.unlink()
    kept = f"; {part.stat().st_size} bytes are kept, run it again to resume" if part.exists() else ""
    raise DownloadError(f"{address}: gave up after {_TRIES} tries: {reason}{kept}")


def _receive(address: str, part: Path, name: str, progress: bool | None) -> None:
    """Append what is missing to `part`. Raises where the connection ends before all has come."""
    have = part.stat().st_size if part.exists() else 0
    request = Request(address, headers={"Range": f"bytes={have}-"} if have else {})
    with urlopen(request, timeout=_TIMEOUT) as answer:
        if answer.status != 206:
            have = 0  # the server sends all of it
        length = answer.headers.get("Content-Length")
        total = have + int(length) if length else None
        part.parent.mkdir(parents=True, exist_ok=True)
        # The name can be guessed, because the next call resumes the file: a link in its place is not followed.
        flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | (os.O_APPEND if have else os.O_TRUNC)
        with (
            open(os.open(part, flags, 0o666), "ab" if have else "wb") as file,
            progress_bar(name, total or 1, progress) as advance,
        ):
            while chunk := answer.read(_CHUNK):
                file.write(chunk)
                have += len(chunk)
                advance(have if total else 0, "")
            file.flush()
            os.fsync(file.fileno())
    if total is not None and have < total:
        raise HTTPException(f"the connection ended after {have} of {total} bytes")


def _has_checksum(path: Path, checksum: str) -> bool:
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest() == checksum
