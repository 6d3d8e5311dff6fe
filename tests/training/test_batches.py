import itertools
import math

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

from steinscope import InputError
from steinscope.models import Gaussian
from steinscope.training import train
from steinscope.training.batches import Batches, make_batches
from steinscope.training.distributed import Processes

from helpers import MEAN, gaussian_points


class Drawn(torch.utils.data.Dataset):
    def __init__(self, x):
        self.x = x

    def __len__(self):
        return len(self.x)

    def __getitem__(self, index):
        return self.x[index]


def sources(tmp_path):
    """The same 300 points in every form."""
    x = gaussian_points(300)
    np.save(tmp_path / "x.npy", x.numpy())
    on_disk = np.load(tmp_path / "x.npy", mmap_mode="r")
    return [x, x.numpy(), on_disk, TensorDataset(x, torch.zeros(300)), Drawn(x)]


def test_arrays_memmaps_and_datasets_are_the_same_data(tmp_path):
    first, *others = (make_batches(source, 40, seed=3) for source in sources(tmp_path))
    for other in others:
        assert isinstance(other, Batches) and torch.equal(other.look(100), first.look(100))
        assert all(torch.equal(other.batch(number), first.batch(number)) for number in (0, 6, 7, 30))
    assert first.batch(0).dtype == torch.float32
    means = [train(Gaussian(torch.zeros(2)), x, steps=2, batch_size=40).model.mean for x in sources(tmp_path)]
    assert all(torch.equal(mean, means[0]) for mean in means)


def test_each_pass_shows_every_point_once_in_a_new_order():
    x = gaussian_points(40)
    batches = make_batches(x, 10, seed=0)
    first, second = (torch.cat([batches.batch(number) for number in range(start, start + 4)]) for start in (0, 4))
    assert not torch.equal(first, second)
    for one_pass in (first, second):
        assert torch.equal(one_pass.sort(0).values, x.sort(0).values)


def test_a_batch_depends_on_the_seed_and_its_number_alone():
    x = gaussian_points(45)
    batches = make_batches(x, 10, seed=1)
    wanted = {number: batches.batch(number) for number in (5, 0, 9)}
    for number, batch in wanted.items():
        assert torch.equal(make_batches(x, 10, seed=1).batch(number), batch) and len(batch) == 10
        assert not torch.equal(make_batches(x, 10, seed=2).batch(number), batch)


def test_a_function_draws_other_points_for_each_batch():
    batches = make_batches(lambda n, generator: torch.randn(n, 2, generator=generator), 10, seed=1)
    drawn = [batches.batch(0), batches.batch(1), batches.look(10)]
    assert all(not torch.equal(a, b) for a, b in itertools.combinations(drawn, 2))
    assert torch.equal(batches.batch(0), drawn[0])


@pytest.mark.parametrize("source", [gaussian_points(40), lambda n, generator: torch.randn(n, 2, generator=generator)])
def test_processes_share_each_batch(source):
    whole = make_batches(source, 12, seed=1)
    parts = [make_batches(source, 12, seed=1, shared=Processes(rank, 3)) for rank in range(3)]
    for rank, part in enumerate(parts):
        assert torch.equal(part.batch(4), whole.batch(4)[rank::3]) and torch.equal(part.look(20), whole.look(20))


def test_a_function_draws_fresh_points():
    calls = []

    def draw(n, generator):
        calls.append(n)
        return MEAN + torch.randn(n, 2, generator=generator)

    result = train(Gaussian(torch.zeros(2)), draw, objective="likelihood", steps=400, batch_size=100, lr=0.02)
    assert calls[1:] == [100] * 400 and (result.model.mean - MEAN).abs().max() < 0.2


@pytest.mark.parametrize(
    "x, message",
    [
        (torch.zeros(0, 2), "x: expected at least one row"),
        (TensorDataset(torch.zeros(0, 2)), "x: expected at least one point, got an empty Dataset"),
        (torch.full((50, 2), math.nan), "x: row 0 holds nan"),
        (lambda n, generator: torch.zeros(3, 2), "x: the function was asked for .* points and returned 3"),
    ],
)
def test_bad_data(x, message):
    with pytest.raises(InputError, match=message):
        train(Gaussian(torch.zeros(2)), x, steps=1, batch_size=10)


def test_an_empty_stream():
    class Stream(IterableDataset):
        def __iter__(self):
            return iter(())

    with pytest.raises(InputError, match="x: expected at least one batch, got an empty DataLoader"):
        make_batches(Stream(), 10, seed=0).look(1)


class Items(Dataset):
    """Points of two coordinates, and one that is something else."""

    def __init__(self, odd):
        self.odd = odd

    def __len__(self):
        return 30

    def __getitem__(self, index):
        return self.odd() if index == 20 else torch.zeros(2)


def fails():
    raise KeyError("label")


@pytest.mark.parametrize(
    "odd, of_dataset, of_loader",
    [
        (
            fails,
            "item 20 of the Dataset cannot be read as an array: KeyError: 'label'",
            "the DataLoader failed: KeyErr",
        ),
        (
            lambda: {"x": torch.zeros(2)},
            "item 20 of the Dataset cannot be read as an array: RuntimeError",
            "a batch of the DataLoader is no array: RuntimeError",
        ),
        (
            lambda: torch.zeros(3),
            r"item 20 of the Dataset has shape \(3,\), expected that of others, \(2,\)",
            r"a batch of the DataLoader has points of shape \(3,\), expected that of others, \(2,\)",
        ),
    ],
)
def test_items_that_cannot_be_read_are_one_line(odd, of_dataset, of_loader):
    for source, problem in (
        (Items(odd), of_dataset),
        (DataLoader(Items(odd), batch_sampler=[[0, 1], [20], [2]]), of_loader),
    ):
        with pytest.raises(InputError, match=f"x: {problem}"):
            train(Gaussian(torch.zeros(2)), source, steps=2, batch_size=30, validation=0, objective="likelihood")


def test_a_function_that_fails_is_one_line():
    def fail(n, generator):
        raise KeyError("first\nsecond")

    with pytest.raises(InputError, match="x: the function failed when it was asked for 4 points .*: KeyError: "):
        make_batches(fail, 4, 0).batch(0)
    with pytest.raises(InputError, match="x: expected at least one point, got an empty Dataset"):
        make_batches(TensorDataset(), 4, 0)
