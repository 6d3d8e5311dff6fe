"""Independent work, one piece after the other or in several processes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from steinscope.support.checks import check_count

__all__ = ["run_jobs"]

Result = TypeVar("Result")


def run_jobs(tasks: Sequence[Callable[[], Result]], jobs: int | None = None) -> list[Result]:
    """The results of tasks, in their order.

    Arguments:
        tasks: What is to be done. In other processes they are pickled.
        jobs: How many processes; None for this one, with all its threads. With a number each task has one thread, so
            that the results are the same to the bit for any number.
    """
    if jobs is not None:
        check_count("jobs", jobs)
    if jobs is None or not tasks:
        return [task() for task in tasks]
    from joblib import Parallel, delayed

    return Parallel(n_jobs=min(jobs, len(tasks)))(delayed(_with_one_thread)(task) for task in tasks)  # pyright: ignore[reportReturnType]


def _with_one_thread(task: Callable[[], Result]) -> Result:
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return task()
    finally:
        torch.set_num_threads(threads)
