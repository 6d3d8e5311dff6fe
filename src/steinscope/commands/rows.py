"""Rows that arrive: from files that may grow, and from the standard input."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from typing import TextIO

import numpy as np

from steinscope.commands.inputs import STANDARD_INPUT, read_points
from steinscope.data.tables import is_number
from steinscope.errors import InputError

__all__ = ["arriving_rows"]

_BINARY = (".npy", ".npz", ".parquet")
_MARKS = (",", ";", "\t")


def arriving_rows(
    sources: Sequence[str],
    size: int,
    *,
    header: bool | None = None,
    seen: Mapping[str, int] | None = None,
    follow: bool = False,
    interval: float = 1.0,
) -> Iterator[tuple[str, np.ndarray]]:
    """Batches of rows, each with the name of its source.

    Arguments:
        sources: Files, one after the other; the standard input by its name in `steinscope.commands.inputs`.
        size: How many rows a batch has. The last one of a source may have fewer.
        header: Whether text begins with a line of names; by default it does if none of them is a number.
        seen: How many rows of each file have been seen before. They are passed over. Those of the standard input are
            always new.
        follow: Whether to wait for more rows of text files, for ever.
        interval: How many seconds to wait before looking again.
    """
    with ExitStack() as files:
        texts: list[_Text] = []
        for source in sources:
            skipped = 0 if source == STANDARD_INPUT else (seen or {}).get(source, 0)
            if Path(source).suffix.lower() in _BINARY:
                array = read_points(source, header=header).array
                _check_grown(source, len(array), skipped)
                for start in range(skipped, len(array), size):
                    yield source, np.asarray(array[start : start + size])
                continue
            file = sys.stdin if source == STANDARD_INPUT else files.enter_context(_open(source))
            texts.append(_Text(source, file, header))
            _check_grown(source, sum(1 for _ in islice(texts[-1].rows(waits=False), skipped)), skipped)
            for batch in texts[-1].batches(size, waits=follow):
                yield source, batch
        while follow and texts:
            time.sleep(interval)
            for text in texts:
                text.check_size()
                for batch in text.batches(size, waits=True):
                    yield text.source, batch


class _Text:
    """Rows of numbers in a text that may grow.

    Arguments:
        source: Its name.
        file: Where it is read from.
        header: Whether it begins with a line of names.
    """

    def __init__(self, source: str, file: TextIO, header: bool | None) -> None:
        self.source, self.file, self.header = source, file, header
        self.shown = "the standard input" if source == STANDARD_INPUT else source
        self.line, self.number, self.mark, self.width = "", 0, "", 0
        self.kept: list[list[float]] = []
        self.size = 0

    def check_size(self) -> None:
        """Refuse a file that has become shorter: its rows are not those that were read."""
        size = os.fstat(self.file.fileno()).st_size
        if size < self.size:
            raise InputError("x", f"{self.shown} has become shorter, expected a file that grows")
        self.size = size

    def batches(self, size: int, waits: bool) -> Iterator[np.ndarray]:
        """Batches of the rows that are there. One that is not full is one only where nothing more is waited for."""
        while rows := list(islice(self.rows(waits), size - len(self.kept))):
            self.kept += rows
            if len(self.kept) == size or not waits:
                batch, self.kept = np.array(self.kept), []
                yield batch

    def rows(self, waits: bool) -> Iterator[list[float]]:
        """The rows that are there. A line without an end is one only where nothing more is waited for."""
        while chunk := self.file.readline():
            self.line += chunk
            if waits and not self.line.endswith("\n"):
                return
            line, self.line = self.line, ""
            self.number += 1
            row = self._row(line.strip().lstrip("\ufeff"))
            if row is not None:
                yield row

    def _row(self, line: str) -> list[float] | None:
        if not line:
            return None
        is_first = not self.width
        if is_first:
            self.mark = next((mark for mark in _MARKS if mark in line), "")
        cells = [cell.strip().strip('"') for cell in (line.split(self.mark) if self.mark else line.split())]
        if is_first:
            self.width = len(cells)
            if self.header or (self.header is None and not any(map(is_number, cells))):
                return None
        if len(cells) != self.width:
            raise InputError(
                "x", f"{self.shown}, line {self.number} has {len(cells)} columns, expected {self.width} as before"
            )
        for column, cell in enumerate(cells, start=1):
            if not is_number(cell):
                came = f"holds {cell[:30]!r}" if cell else "is empty"
                raise InputError("x", f"{self.shown}, line {self.number}, column {column} {came}, expected a number")
        return [float(cell) for cell in cells]


def _check_grown(source: str, there: int, seen: int) -> None:
    if there < seen:
        problem = f"{source} has {there} rows, and the test has seen {seen} of it: it is another file now"
        raise InputError("x", f"{problem}; give it another name")


def _open(source: str) -> TextIO:
    try:
        return open(source, encoding="utf-8", errors="replace")
    except OSError as error:
        raise InputError("x", f"cannot read {source}: {error.strerror or error}") from None
