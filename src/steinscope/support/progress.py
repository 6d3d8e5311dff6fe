"""A progress bar on a terminal; elsewhere plain lines where they are asked for, and otherwise silence."""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

__all__ = ["Advance", "progress_bar", "same_random_state"]

_SECONDS_BETWEEN_LINES = 10.0

Advance = Callable[[int, str], None]
"""Say how many steps are done, and a short text to show beside the bar."""


@contextmanager
def progress_bar(title: str, total: int, show: bool | None = None) -> Iterator[Advance]:
    """Show a bar while the block runs.

    Arguments:
        title: What is being done.
        total: How many steps there are.
        show: True for a bar where the standard error is a terminal, and elsewhere a line now and then; False for
            nothing; by default a bar on a terminal, and nothing elsewhere.
    """
    with same_random_state():
        # A part of rich draws a number when it is first imported.
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    if show is False or (show is None and not console.is_terminal):
        yield lambda done, text: None
        return
    if not console.is_terminal:
        yield _lines(title, total)
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, TextColumn("{task.fields[note]}"), console=console, transient=True) as bar:
        task = bar.add_task(title, total=total, note="")
        yield lambda done, text: bar.update(task, completed=done, note=text)


@contextmanager
def same_random_state() -> Iterator[None]:
    """Leave the state of Python's `random` as it is, whatever the block draws from it."""
    state = random.getstate()
    try:
        yield
    finally:
        random.setstate(state)


def _lines(title: str, total: int) -> Advance:
    """Write a line to the standard error every ten seconds, so that short work is silent."""
    last = time.monotonic()

    def advance(done: int, text: str) -> None:
        nonlocal last
        if time.monotonic() - last >= _SECONDS_BETWEEN_LINES:
            last = time.monotonic()
            note = f", {text}" if text else ""
            print(f"{title}: {done} of {total}{note}", file=sys.stderr, flush=True)

    return advance
