"""Independent work: one piece after the other, in several processes, or on a Dask cluster."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any, TypeVar

from steinscope.errors import InputError
from steinscope.support.checks import check_count

__all__ = ["as_they_end", "cluster_client", "on_cluster", "run_jobs"]

Result = TypeVar("Result")

_PATIENCE_SECONDS = 10


def run_jobs(tasks: Sequence[Callable[[], Result]], jobs: int | None = None) -> list[Result]:
    """The results of tasks, in their order.

    Under `joblib.parallel_config(backend="dask")`, or within `on_cluster`, they run on a Dask cluster.

    Arguments:
        tasks: What is to be done. In other processes they are pickled.
        jobs: How many processes; None for this one, with all its threads, or for all workers of a cluster. With a
            number each task has one thread, so that the results are the same to the bit for any number.
    """
    if jobs is not None:
        check_count("jobs", jobs)
    if not tasks or (jobs is None and not _is_on_cluster()):
        return [task() for task in tasks]
    results: list[Any] = [None] * len(tasks)
    for number, result in as_they_end(tasks, jobs):
        results[number] = result
    return results


def as_they_end(tasks: Sequence[Callable[[], Result]], jobs: int | None = None) -> Iterator[tuple[int, Result]]:
    """The numbers of tasks and their results, each as soon as it is there. Each task has one thread.

    Arguments:
        tasks: What is to be done. In other processes they are pickled.
        jobs: How many at once; None for as many as there are processors, or workers of a cluster.
    """
    import torch
    from joblib import Parallel, delayed, parallel_config

    if jobs is not None:
        check_count("jobs", jobs)
    threads = torch.get_num_threads()
    try:
        if not tasks or (not _is_on_cluster() and (jobs == 1 or len(tasks) == 1)):
            for number, task in enumerate(tasks):
                yield _with_one_thread(number, task)
            return
        count = -1 if jobs is None else min(jobs, len(tasks))
        with nullcontext() if _is_on_cluster() else parallel_config(backend="loky", inner_max_num_threads=1):
            parallel = Parallel(n_jobs=count, return_as="generator_unordered")
            results = parallel(delayed(_with_one_thread)(*numbered) for numbered in enumerate(tasks))
        yield from results  # pyright: ignore[reportReturnType]
    finally:
        # Tasks that ran in this process have left it with one thread.
        torch.set_num_threads(threads)


def _with_one_thread(number: int, task: Callable[[], Result]) -> tuple[int, Result]:
    """A task with its number. The threads are not put back: on a worker other tasks may be running beside it."""
    import torch

    torch.set_num_threads(1)
    return number, task()


def _is_on_cluster() -> bool:
    from joblib.parallel import get_active_backend

    return type(get_active_backend()[0]).__name__ == "DaskDistributedBackend"


def cluster_client() -> Any | None:
    """The client of a Dask cluster that is active in this process, if there is one and this is not a task of it."""
    distributed = sys.modules.get("distributed")
    if distributed is None:
        return None
    try:
        distributed.get_worker()
        return None
    except ValueError:
        pass
    try:
        client = distributed.default_client()
    except ValueError:
        return None
    return None if client.asynchronous or client.status != "running" else client


@contextmanager
def on_cluster(address: str | None) -> Iterator[None]:
    """Within the block tasks run on a Dask cluster.

    Arguments:
        address: Where its scheduler listens, such as `tcp://10.0.0.1:8786`; None for no cluster.
    """
    if address is None:
        yield
        return
    try:
        from distributed import Client
    except ModuleNotFoundError:
        raise InputError(
            "cluster", "this needs Dask, here and on all workers; install it by: pip install 'steinscope[cluster]'"
        ) from None
    from joblib import parallel_config

    try:
        client = Client(address, timeout=_PATIENCE_SECONDS, set_as_default=True)
    except (OSError, ValueError, TypeError) as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise InputError("cluster", f"no scheduler can be reached at {address}: {reason}") from None
    with client:
        try:
            client.wait_for_workers(1, timeout=_PATIENCE_SECONDS)
        except TimeoutError:
            raise InputError(
                "cluster", f"the scheduler at {address} has no workers; start some by: dask worker {address}"
            ) from None
        with parallel_config(backend="dask", n_jobs=-1):
            yield
