"""A progress bar on a terminal, and silence elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

__all__ = ["Advance", "progress_bar"]

Advance = Callable[[int, str], None]
"""Say how many steps are done, and a short text to show beside the bar."""


@contextmanager
def progress_bar(title: str, total: int, show: bool | None = None) -> Iterator[Advance]:
    """Show a bar while the block runs.

    Arguments:
        title: What is going on.
        total: How many steps there are.
        show: True or False to decide; by default a bar is shown where the standard error is a terminal.
    """
    from rich.console import Console

    console = Console(stderr=True)
    if show is False or (show is None and not console.is_terminal):
        yield lambda done, text: None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, TextColumn("{task.fields[note]}"), console=console, transient=True) as bar:
        task = bar.add_task(title, total=total, note="")
        yield lambda done, text: bar.update(task, completed=done, note=text)
