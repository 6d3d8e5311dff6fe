"""Batches from a torch DataLoader or a stream of points, whose order is their own."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader

from steinscope.errors import InputError, first_line
from steinscope.points import check_rows
from steinscope.training.distributed import Processes

__all__ = ["LoaderBatches", "first_part"]

_MOST_LOOKED_AT = 64


def first_part(item: Any) -> Any:
    """Of a pair, such as image and label, the first is the point."""
    return item[0] if isinstance(item, tuple | list) else item


class LoaderBatches:
    """Batches as a DataLoader makes them, one after the other, from its beginning again when it ends.

    Their order is not known in advance, so that a run that was stopped goes on with other batches than it would have
    had.

    Arguments:
        loader: The `DataLoader`, or an `IterableDataset` of points, from which batches of `batch_size` are made.
        batch_size: Points in each batch, for a stream.
        dtype: The floating type of the points.
        device: Where they go.
        shared: The processes that share a run: a loader serves one.
    """

    def __init__(
        self,
        loader: Any,
        batch_size: int,
        dtype: torch.dtype | None,
        device: torch.device,
        shared: Processes,
    ) -> None:
        if shared.count > 1:
            raise InputError("x", "a DataLoader cannot be shared by several processes; give an array or a Dataset")
        self.loader = loader if isinstance(loader, DataLoader) else DataLoader(loader, batch_size=batch_size)
        self.dtype, self.device = dtype, device
        self.stream: Iterator[Any] = iter(())

    def look(self, n: int) -> Tensor:
        """The first points, n of them or those of 64 batches."""
        found: list[Tensor] = []
        for batch in itertools.islice(iter(self.loader), _MOST_LOOKED_AT):
            found.append(self._read(batch))
            if sum(map(len, found)) >= n:
                break
        if not found:
            raise InputError("x", "expected at least one batch, got an empty DataLoader")
        return torch.cat(found)[:n]

    def batch(self, number: int) -> Tensor:
        """The next batch, whatever its number is."""
        del number
        try:
            return self._read(next(self.stream))
        except StopIteration:
            self.stream = iter(self.loader)
        try:
            return self._read(next(self.stream))
        except StopIteration:
            raise InputError("x", "the DataLoader has no batches left when it is gone through again") from None

    def is_first_pass(self, number: int) -> bool:
        """False: nobody knows what a loader yields."""
        del number
        return False

    def held_out(self) -> Tensor | None:
        """None: what a loader yields cannot be kept apart."""
        return None

    def identity(self) -> dict[str, str | None]:
        """A loader cannot be told from another."""
        return {"points": "from a DataLoader", "digest": None}

    def _read(self, batch: Any) -> Tensor:
        try:
            points = torch.as_tensor(first_part(batch))
        except Exception as error:
            raise InputError("x", f"a batch of the DataLoader is no array: {first_line(error)}") from error
        rows = check_rows(points, "x", dtype=self.dtype, device=self.device)
        assert isinstance(rows, Tensor)
        return rows
