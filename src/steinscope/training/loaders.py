"""Batches from a torch DataLoader or a stream of points, whose order is their own."""

from __future__ import annotations

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
        self.shape: torch.Size | None = None
        # How many points have come in this pass, and came in the last one.
        self.read = 0
        self.count: int | None = None

    def look(self, n: int) -> Tensor:
        """The first points, n of them or those of 64 batches."""
        found: list[Tensor] = []
        stream = iter(self.loader)
        for _ in range(_MOST_LOOKED_AT):
            try:
                found.append(self._next(stream))
            except StopIteration:
                break
            if sum(map(len, found)) >= n:
                break
        if not found:
            raise InputError("x", "expected at least one batch, got an empty DataLoader")
        return torch.cat(found)[:n]

    def batch(self, number: int) -> Tensor:
        """The next batch, whatever its number is."""
        del number
        for _ in range(2):
            try:
                points = self._next(self.stream)
            except StopIteration:
                self.stream, self.count, self.read = iter(self.loader), self.read or self.count, 0
            else:
                self.read += len(points)
                return points
        raise InputError("x", "the DataLoader has no batches left when it is gone through again")

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

    def _next(self, stream: Iterator[Any]) -> Tensor:
        try:
            batch = next(stream)
        except StopIteration:
            raise
        except Exception as error:
            raise InputError("x", f"the DataLoader failed: {first_line(error)}") from error
        rows = self._read(batch)
        self.shape = self.shape or rows.shape[1:]
        if rows.shape[1:] != self.shape:
            problem = f"a batch of the DataLoader has points of shape {tuple(rows.shape[1:])}, expected that of others"
            raise InputError("x", f"{problem}, {tuple(self.shape)}")
        return rows

    def _read(self, batch: Any) -> Tensor:
        try:
            points = torch.as_tensor(first_part(batch))
        except Exception as error:
            raise InputError("x", f"a batch of the DataLoader is no array: {first_line(error)}") from error
        rows = check_rows(points, "x", dtype=self.dtype, device=self.device)
        assert isinstance(rows, Tensor)
        return rows
