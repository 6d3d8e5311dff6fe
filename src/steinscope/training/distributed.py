"""What data-parallel training by torchrun needs.

Each process takes its part of every batch, and the gradients are averaged by one call a step. torch's
DistributedDataParallel is not used: its hooks give wrong gradients where the loss itself contains a gradient.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from itertools import count as count_from
from typing import Any

import torch
from torch import Tensor, distributed

from steinscope.errors import InputError

__all__ = ["ONE_PROCESS", "Processes", "processes"]

_groups = count_from()


@dataclass(frozen=True)
class Processes:
    """The processes that train together, seen from one of them.

    Arguments:
        rank: The number of this process.
        count: How many there are.
    """

    rank: int
    count: int

    @property
    def writes(self) -> bool:
        """Whether this is the process that writes files and shows progress."""
        return self.rank == 0

    def check_batch(self, batch_size: int) -> None:
        """Refuse a batch that cannot be shared in equal parts."""
        if batch_size % self.count:
            raise InputError("batch_size", f"expected a multiple of the {self.count} processes, got {batch_size}")

    def whole_batch(self, rows: int) -> int:
        """The largest batch of at most so many rows that can be shared in equal parts."""
        if rows < self.count:
            raise InputError("x", f"expected at least one point for each of {self.count} processes, got {rows}")
        return rows - rows % self.count

    def take_part(self, rows: Tensor) -> Tensor:
        """This process's rows of a batch."""
        return rows if self.count == 1 else rows[self.rank :: self.count]

    def average(self, tensors: Iterable[Tensor]) -> None:
        """Replace tensors by their mean over the processes, in one call."""
        if self.count == 1:
            return
        tensors = list(tensors)
        flat = torch.cat([tensor.detach().flatten() for tensor in tensors])
        distributed.all_reduce(flat)
        flat /= self.count
        for tensor, part in zip(tensors, flat.split([tensor.numel() for tensor in tensors]), strict=True):
            tensor.detach().copy_(part.view_as(tensor))

    def copy_from_first(self, tensors: Iterable[Tensor]) -> None:
        """Replace tensors by those of the first process."""
        if self.count > 1:
            for tensor in tensors:
                of_first = tensor.detach().contiguous()
                distributed.broadcast(of_first, 0)
                tensor.detach().copy_(of_first)

    def agree(self, word: str | None) -> str | None:
        """What the first process says, in all of them."""
        if self.count == 1:
            return word
        words = [word]
        distributed.broadcast_object_list(words, 0)
        return words[0]

    def wait(self) -> None:
        """Wait for all processes."""
        if self.count > 1:
            distributed.barrier()


ONE_PROCESS = Processes(0, 1)


@contextmanager
def processes() -> Iterator[Processes]:
    """The processes that torchrun started; one where it did not.

    A process group that is there already is used. Otherwise one is made with gloo, and taken down at the end.
    """
    count = int(os.environ.get("WORLD_SIZE", "1"))
    if not distributed.is_available() or (count == 1 and not distributed.is_initialized()):
        yield ONE_PROCESS
        return
    if distributed.is_initialized():
        yield Processes(distributed.get_rank(), distributed.get_world_size())
        return
    from torch.distributed.distributed_c10d import PrefixStore

    store, rank, count = _rendezvous()
    # A name of its own for each group: under the same name the processes would find the addresses of the last one.
    name = f"steinscope/{next(_groups)}"
    distributed.init_process_group("gloo", store=PrefixStore(name, store), rank=rank, world_size=count)
    try:
        yield Processes(rank, count)
    finally:
        distributed.destroy_process_group()


@cache
def _rendezvous() -> tuple[Any, int, int]:
    """Where the processes that torchrun started find each other, this process's number, and how many there are. It
    stays until the process ends, because it may be this process that the others are connected to."""
    from torch.distributed.rendezvous import rendezvous

    return next(rendezvous("env://"))
