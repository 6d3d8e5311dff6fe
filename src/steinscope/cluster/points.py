"""Points that stay on the workers of a Dask cluster: visitors go there, and sums come back."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from steinscope.cluster.sources import Part, dask_parts, file_parts
from steinscope.cluster.tasks import Setting, Survey, added, look, packed, read, survey, written
from steinscope.errors import InputError, first_line
from steinscope.frames import coordinate_names
from steinscope.points import Extent, ScoredPoints, SumVisitor, Visitor, check_device, check_dtype, rows_dtype
from steinscope.scoring import check_some_nonzero, is_scores
from steinscope.shards import Shards, is_dask, is_shards
from steinscope.support.jobs import cluster_client
from steinscope.supports import find_region
from steinscope.unconstrained import Unconstrained

__all__ = ["ClusterPoints", "Traffic", "points_on_cluster"]

# So many sums are added up at once, on a worker.
_ADDED_AT_ONCE = 8


class _Afar(Shards):
    """Rows that are elsewhere: their shape and type are known, and no more."""

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype) -> None:
        super().__init__([np.empty((0, *shape[1:]), dtype)])
        self.shape = shape

    def __getitem__(self, index: slice | np.ndarray) -> np.ndarray:
        raise TypeError("these rows are on the workers of a cluster")


@dataclass
class Traffic:
    """What went to the workers of a cluster and came from there.

    Arguments:
        sent: Bytes that went from this machine to the workers, all of them together.
        received: Bytes that came from the workers to this machine.
        rows: How many points came, as a part of that.
        rounds: How often the workers were asked.
    """

    sent: int = 0
    received: int = 0
    rows: int = 0
    rounds: int = 0

    def __str__(self) -> str:
        sent, received = (f"{count / 1e6:.3g} MB" for count in (self.sent, self.received))
        return f"{received} came from there, with {self.rows} of the points, and {sent} went there"


@dataclass(frozen=True, kw_only=True)
class ClusterPoints(ScoredPoints):
    """Points and scores on the workers of a cluster.

    Arguments:
        client: The client of the cluster.
        parts: Where the rows are.
        setting: What workers know, which they hold.
        extent: How far the points reach.
        first: The first point.
        traffic: What has travelled so far.
        recent: The rows that came last, and their points and scores.
    """

    client: Any = field(repr=False)
    parts: tuple[Part, ...] = field(repr=False)
    setting: Any = field(repr=False)
    extent: Extent = field(repr=False)
    first: Tensor = field(repr=False)
    traffic: Traffic = field(default_factory=Traffic)
    recent: list[tuple[Tensor, Tensor, Tensor]] = field(default_factory=list, repr=False)

    @property
    def is_afar(self) -> bool:
        """Whether the points stay on other machines, where visitors go to see them."""
        return True

    def with_room(self) -> ScoredPoints:
        """The same points in float64 where float32 is too narrow."""
        if self.dtype == torch.float64 or not self.extent.is_wide(self.first):
            return self
        return replace(self, dtype=torch.float64)

    def take(self, index: slice | Tensor) -> tuple[Tensor, Tensor]:
        """Points and scores of these rows, which travel."""
        rows = self._rows(torch.arange(len(self))[index] if isinstance(index, slice) else index)
        if not (self.recent and torch.equal(self.recent[0][0], rows)):
            gathered = _Gathered()
            replace(self, index=None, metric=None).visit(rows, gathered)
            self.traffic.rows += len(rows)
            x, score = (part.reshape(-1, *self.x.shape[1:]) for part in gathered.in_order(rows))
            self.recent[:] = [(rows, x, score)]
        _, x, score = self.recent[0]
        if self.metric is not None:
            return self.metric.points(x), self.metric.scores(score)
        return x, score

    def visit(self, rows: Tensor, visitor: Visitor) -> None:
        """Send copies of a visitor to the points of these rows, and add up what they bring back."""
        from dask.delayed import delayed

        assert isinstance(visitor, SumVisitor), "points that stay elsewhere are seen by those who bring back sums"
        if not len(rows):
            return
        wanted = np.sort(self._rows(rows).numpy())
        ends = np.searchsorted(wanted, [part.stop for part in self.parts])
        orders = _send(self.client, (visitor.apart(), self.metric, self.dtype), self.traffic)
        found = []
        for part, low, high in zip(self.parts, [0, *ends], ends, strict=False):
            if low < high:
                places = packed(wanted[low:high] - part.start, part.stop - part.start)
                self.traffic.sent += len(places[0])
                found.append(delayed(look)(part.x, part.score, part.start, places, self.setting, orders))
        while len(found) > 1:
            groups = range(0, len(found), _ADDED_AT_ONCE)
            found = [delayed(added)(found[start : start + _ADDED_AT_ONCE]) for start in groups]
        (answer,) = _answers(self.client, [delayed(written)(found[0])])
        self.traffic.received += len(answer)
        self.traffic.rounds += 1
        visitor.join(read(answer))

    def _rows(self, index: Tensor) -> Tensor:
        """Numbers of all rows, from those of the rows that are meant."""
        return (index if self.index is None else self.index[index]).cpu().contiguous()


class _Gathered(SumVisitor):
    """A visitor that brings back the points themselves."""

    def __init__(self) -> None:
        self.batches: list[tuple[Tensor, Tensor, Tensor]] = []

    def __call__(self, rows: Tensor, x: Tensor, score: Tensor) -> None:
        self.batches.append((rows, x, score))

    def apart(self) -> _Gathered:
        return _Gathered()

    def brought(self) -> _Gathered:
        return self

    def join(self, other: _Gathered) -> None:
        self.batches += other.batches

    def in_order(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Points and scores of these rows."""
        came, x, score = (torch.cat(parts) for parts in zip(*self.batches, strict=True))
        known = came.sort()
        places = known.indices[torch.searchsorted(known.values, rows)]
        return x[places], score[places]


def points_on_cluster(
    x: Any,
    model: Any,
    *,
    support: Any = None,
    names: Sequence[str] | None = None,
    dtype: torch.dtype | None = None,
    device: torch.device | str | None = None,
    least: int = 1,
) -> ClusterPoints | None:
    """Checked points that stay where they are, if a cluster is there and they are shards or partitions of Dask.

    Arguments:
        x: The points.
        model: A model, or scores, in shards or partitions as x is.
        support: Where the density is positive; by default what the model says.
        names: What the coordinates are called; by default the columns of x where it is a data frame.
        dtype: The floating type to compute in; by default that of x.
        device: Where to compute. Workers compute on their CPU: for any other device the answer is None.
        least: The number of points below which the answer is None.
    """
    dtype, place, client = check_dtype(dtype), check_device(device), cluster_client()
    has_scores = is_scores(model)
    kind = is_shards if is_shards(x) else is_dask
    if client is None or not kind(x) or (has_scores and not kind(model)) or (place is not None and place.type != "cpu"):
        return None
    sources = file_parts(x, model if has_scores else None) if is_shards(x) else dask_parts(x, model, has_scores)
    if sources is None or (sources.count is not None and sources.count < least):
        return None
    region = find_region(support, None if has_scores else model, sources.tail)
    coordinates = None if region is None else Unconstrained(region)
    rows = _Afar((0, *sources.tail), sources.dtype)
    known = Setting(None if has_scores else model, coordinates, sources.tail, dtype or rows_dtype(rows), sources.dtype)
    labels = coordinate_names(x, names, math.prod(sources.tail))
    traffic = Traffic()
    setting = _send(client, known, traffic)
    parts, extent, first = _surveyed(client, sources.parts, setting, traffic)
    count = parts[-1].stop
    if count < least:
        return None
    check_some_nonzero(bool(extent.largest.any()), "model", count)
    shape = (count, *(sources.tail if coordinates is None else coordinates.shape))
    afar = _Afar(shape, sources.dtype)
    return ClusterPoints(
        afar,
        afar,
        known.dtype,
        torch.device("cpu"),
        names=labels,
        coordinates=coordinates,
        client=client,
        parts=parts,
        setting=setting,
        extent=extent,
        first=first,
        traffic=traffic,
    )


def _surveyed(
    client: Any, parts: Sequence[Part], setting: Any, traffic: Traffic
) -> tuple[tuple[Part, ...], Extent, Tensor]:
    """The parts with the numbers of their rows, or an `InputError` for the first that cannot be used."""
    from dask.delayed import delayed

    found: list[tuple[Part, Survey]] = []
    start = 0
    answers = _answers(client, [delayed(survey)(part.x, part.score, setting) for part in parts])
    for part, answer in zip(parts, answers, strict=True):
        traffic.received += len(answer)
        said = read(answer)
        if isinstance(said, InputError):
            raise InputError(said.argument, f"{part.label}: {said.problem}")
        if said is not None:
            found.append((replace(part, start=start, stop=start + said.count), said))
            start += said.count
    traffic.rounds += 1
    if not found:
        raise InputError("x", "expected at least one row, got none")
    extent = Extent.over([said.extent for _, said in found])
    return tuple(part for part, _ in found), extent, found[0][1].first


def _send(client: Any, value: Any, traffic: Traffic) -> Any:
    """Give a value to all workers; returns where they hold it."""
    content = written(value)
    traffic.sent += len(content) * max(1, len(client.scheduler_info(n_workers=-1)["workers"]))
    return client.scatter(content, broadcast=True, hash=False)


def _answers(client: Any, tasks: Sequence[Any]) -> list[Any]:
    """What tasks give. A worker that dies loses nothing but time."""
    threads = torch.get_num_threads()
    try:
        with warnings.catch_warnings():
            # Numbers of rows go with the tasks.
            warnings.filterwarnings("ignore", "Sending large graph", UserWarning)
            return client.gather(client.compute(list(tasks)))
    except InputError:
        raise
    except Exception as error:
        problem = f"{type(error).__name__}: {first_line(error)}"
        raise InputError("x", f"cannot be computed on the cluster: {problem}") from error
    finally:
        # Workers may be threads of this process, which they leave with one thread for torch.
        torch.set_num_threads(threads)
