import numpy as np
import pytest
import torch

from steinscope import InputError
from steinscope.points import ScoredPoints, check_rows, read_rows, temporary_rows


@pytest.mark.parametrize(
    "value, dtype",
    [
        ([[1, 2], [3, 4]], torch.float32),
        (np.ones((2, 2)), torch.float64),
        (np.ones((2, 2), np.float32), torch.float32),
        (np.ones((2, 2), np.float16), torch.float32),
        (np.array([[True, False]]), torch.float32),
        (torch.ones(2, 2, dtype=torch.bfloat16), torch.float32),
        (torch.ones(2, 2, dtype=torch.float64), torch.float64),
        (np.asfortranarray(np.ones((3, 2)))[::-1], torch.float64),
    ],
)
def test_the_type_follows_the_array(value, dtype):
    assert check_rows(value, "x").dtype == dtype


def test_a_type_can_be_asked_for():
    assert check_rows(np.ones((2, 2)), "x", dtype=torch.float32).dtype == torch.float32


@pytest.mark.parametrize(
    "value, message",
    [
        (np.array([[0.0, 1.0], [np.nan, 0.0], [np.inf, 0.0]]), "x: row 1 holds nan; every value must be finite"),
        (torch.tensor([[0.0], [-float("inf")]]), "x: row 1 holds -inf"),
        (3.0, "x: expected rows of points, got a single number"),
        (np.zeros((0, 2)), r"x: expected at least one row and one column, got shape \(0, 2\)"),
        (np.zeros((3, 0)), r"x: expected at least one row and one column, got shape \(3, 0\)"),
        (np.array([["a"]]), "x: expected real numbers, got an array of <U1"),
        (np.array([[1j]]), "x: expected real numbers, got an array of complex128"),
        (np.array([[None, {}]]), "x: expected real numbers, got an array of object"),
        ({"a": 1}, "x: expected real numbers, got an object of type dict"),
        ([[1.0], [1.0, 2.0]], "x: expected an array, got list"),
        (torch.ones(2, dtype=torch.complex64), "x: expected real numbers, got torch.complex64"),
    ],
)
def test_bad_arrays(value, message):
    with pytest.raises(InputError, match=message):
        check_rows(value, "x")


def test_the_first_bad_row_of_a_memmap_is_found(tmp_path):
    values = np.zeros((500, 3), np.float32)
    values[[321, 400], 1] = np.nan
    np.save(tmp_path / "x.npy", values)
    with pytest.raises(InputError, match="x: row 321 holds nan"):
        check_rows(np.load(tmp_path / "x.npy", mmap_mode="r"), "x")


@pytest.mark.parametrize("dtype", ["<f4", ">f4", "<f8", "<i4"])
def test_rows_of_a_memmap_come_in_the_order_asked_for(tmp_path, dtype):
    values = np.arange(20).reshape(10, 2).astype(dtype)
    np.save(tmp_path / "x.npy", values)
    rows = np.load(tmp_path / "x.npy", mmap_mode="r")
    index = torch.tensor([7, 0, 7, 3])
    assert read_rows(rows, index).tolist() == values[index.numpy()].tolist()


def test_points_on_disk_and_in_memory_are_the_same():
    x = temporary_rows((30, 2), torch.float32)
    x[:] = np.arange(60).reshape(30, 2)
    on_disk = ScoredPoints(x, x, torch.float32, torch.device("cpu"))
    in_memory = ScoredPoints(
        torch.from_numpy(np.array(x)), torch.from_numpy(np.array(x)), torch.float32, torch.device("cpu")
    )
    first, second = torch.arange(29, 9, -2), torch.tensor([3, 1])
    for points in (on_disk, in_memory):
        chosen = points.subset(first).subset(second)
        assert chosen.take(slice(None))[0].tolist() == [[46.0, 47.0], [54.0, 55.0]]
        assert [len(batch) for batch, _ in points.batches(12)] == [12, 12, 6]
        assert points.dim == 2
