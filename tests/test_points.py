import inspect

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as st_numpy

from steinscope import InputError, from_score
from steinscope.points import ScoredPoints, check_rows, read_rows, row_blocks, temporary_rows
from steinscope.scoring import make_points, pair_points

SHAPES = st_numpy.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3)
KINDS = st.one_of(
    *(kind(endianness="=") for kind in (st_numpy.floating_dtypes, st_numpy.integer_dtypes)),
    st_numpy.unsigned_integer_dtypes(endianness="="),
    st_numpy.boolean_dtypes(),
).filter(lambda dtype: dtype.itemsize <= 8)


@given(st_numpy.arrays(KINDS, SHAPES))
def test_any_array_is_taken_or_refused_in_one_line(array):
    """Rows of finite numbers come back as they are, in a type to compute in; all else names what is wrong."""
    before = array.copy()
    if array.ndim == 0 or array.size == 0 or not np.isfinite(array).all():
        with pytest.raises(InputError) as caught:
            check_rows(array, "points")
        assert caught.value.argument == "points" and "\n" not in str(caught.value)
        return
    rows = check_rows(array, "points")
    # Whatever float32 holds exactly is computed in it.
    is_narrow = array.dtype.itemsize <= (2 if array.dtype.kind in "iu" else 4)
    assert rows.dtype == (torch.float32 if is_narrow else torch.float64)
    assert rows.shape == array.shape and np.array_equal(rows.numpy(), array.astype(rows.numpy().dtype))
    assert np.array_equal(array, before)


@given(
    st.recursive(st.none() | st.text(max_size=2) | st.floats() | st.booleans(), lambda part: st.lists(part, max_size=3))
)
def test_any_nested_list_is_taken_or_refused_in_one_line(value):
    try:
        rows = check_rows(value, "points")
    except InputError as error:
        assert error.argument == "points" and "\n" not in str(error)
    else:
        assert rows.ndim >= 1 and rows.isfinite().all() and rows.tolist() == value


@pytest.mark.parametrize("dtype", [">f4", ">f8", ">i4", np.longdouble])
def test_every_number_of_numpy_is_a_number(dtype):
    values = np.arange(6).reshape(3, 2)
    assert check_rows(values.astype(dtype), "x").tolist() == values.tolist()


@pytest.mark.parametrize(
    "value, dtype",
    [
        ([[1, 2], [3, 4]], torch.float64),
        (np.ones((2, 2), np.uint8), torch.float32),
        (np.ones((2, 2), np.int16), torch.float32),
        (np.ones((2, 2), np.int32), torch.float64),
        (torch.ones(2, 2, dtype=torch.int64), torch.float64),
        (torch.ones(2, 2, dtype=torch.float16), torch.float32),
        (torch.ones(2, 2, dtype=torch.bool), torch.float32),
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
        (
            torch.ones(2, dtype=torch.complex64),
            "expected a dense tensor of real numbers, got numbers of torch.complex64",
        ),
        (torch.eye(3).to_sparse(), "x: expected a dense tensor of real numbers, got a sparse tensor"),
        (torch.ones(2, 2, device="meta"), "x: expected a dense tensor of real numbers, got a meta tensor"),
        (
            np.ma.masked_equal(np.arange(6.0).reshape(3, 2), 3.0),
            "x: row 1 holds a masked value; leave out rows with masked values, or fill them",
        ),
    ],
)
def test_bad_arrays(value, message):
    with pytest.raises(InputError, match=message):
        check_rows(value, "x")


@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor")
def test_a_quantised_tensor_is_refused():
    with pytest.raises(InputError, match="x: expected a dense tensor of real numbers, got a quantised tensor"):
        check_rows(torch.quantize_per_tensor(torch.ones(2, 2), 0.1, 0, torch.qint8), "x")


@pytest.mark.parametrize("dtype", [torch.float16, torch.int64, "float64", np.float32])
def test_only_two_types_can_be_computed_in(dtype):
    with pytest.raises(InputError, match="dtype: expected torch.float32 or torch.float64, got"):
        inspect.unwrap(check_rows)(np.ones((2, 2)), "x", dtype=dtype)


@pytest.mark.parametrize("device", ["nowhere", "meta", 3.5, *(() if torch.cuda.is_available() else ("cuda", 0))])
def test_a_device_that_is_not_there_is_one_line(device):
    with pytest.raises(InputError, match="device: ") as caught:
        inspect.unwrap(check_rows)(np.ones((2, 2)), "x", device=device)
    assert "\n" not in str(caught.value)


def test_masked_arrays_without_masks_and_read_only_arrays_are_arrays():
    values = np.arange(6.0).reshape(3, 2)
    assert check_rows(np.ma.masked_array(values), "x").tolist() == values.tolist()
    values.setflags(write=False)
    rows = check_rows(values, "x")
    rows += 1
    assert values[0, 0] == 0


def test_large_whole_numbers_are_kept():
    values = 10**10 + np.arange(6).reshape(3, 2)
    assert check_rows(values, "x").tolist() == check_rows(torch.from_numpy(values), "x").tolist() == values.tolist()


def test_points_of_inference_mode_can_be_learned_from():
    with torch.inference_mode():
        x = torch.ones(3, 2)
    weights = torch.ones(2, requires_grad=True)
    (check_rows(x, "x") @ weights).sum().backward()
    assert weights.grad.tolist() == [3.0, 3.0]


def test_points_get_room_where_float32_is_too_narrow():
    x = torch.linspace(-1, 1, 20).view(10, 2)
    for factor in (1e-30, 1.0, 1e30):
        assert make_points(factor * x, -x / factor).with_room().dtype == torch.float32
    wide = make_points(x, -1e20 * x).with_room()
    assert wide.dtype == torch.float64 and wide.take(slice(None))[0].tolist() == x.double().tolist()


def test_the_first_bad_row_of_a_memmap_is_found(tmp_path):
    values = np.zeros((500, 3), np.float32)
    values[[321, 400], 1] = np.nan
    np.save(tmp_path / "x.npy", values)
    with pytest.raises(InputError, match="x: row 321 holds nan"):
        check_rows(np.load(tmp_path / "x.npy", mmap_mode="r"), "x")


@pytest.mark.parametrize("dtype", ["<f4", ">f4", "<f8", ">f8", "<i4", ">i8", np.longdouble])
def test_rows_of_a_memmap_come_in_the_order_asked_for(tmp_path, dtype):
    values = np.arange(20).reshape(10, 2).astype(dtype)
    np.save(tmp_path / "x.npy", values)
    rows = np.load(tmp_path / "x.npy", mmap_mode="r")
    index = torch.tensor([7, 0, 7, 3])
    chosen = read_rows(rows, index)
    assert chosen.tolist() == values[index.numpy()].tolist()
    assert chosen.dtype == (torch.float32 if values.dtype.kind + str(values.itemsize) == "f4" else torch.float64)


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


@given(st.integers(1, 40), st.integers(1, 5), st.integers(1, 200), st.none() | st.integers(1, 50))
def test_blocks_of_rows_go_over_all_of_them_once(n, dim, block_bytes, size):
    rows = torch.zeros(n, dim)
    blocks = list(row_blocks(rows, block_bytes, size))
    assert [row for start, stop in blocks for row in range(start, stop)] == list(range(n))
    if size is None:
        assert all((stop - start) * dim * 8 <= max(block_bytes, dim * 8) for start, stop in blocks)


def test_points_are_made_with_their_scores():
    x = np.arange(6.0).reshape(3, 2)
    points = make_points(x, from_score(lambda y: -2 * y))
    assert (len(points), points.dim, points.dtype) == (3, 2, torch.float64)
    assert points.take(slice(None))[1].tolist() == (-2 * x).tolist()
    assert make_points(x, -x, dtype=torch.float32).take(slice(None))[1].dtype == torch.float32


def test_points_and_scores_are_paired():
    x, score = torch.ones(3, 2), np.zeros((3, 2))
    points = pair_points(x, score)
    assert points.dtype == torch.float32 and points.take(slice(None))[1].dtype == torch.float32
    like = pair_points(score, score)
    assert pair_points(x, score, like=like).take(slice(None))[0].dtype == torch.float64
    with pytest.raises(InputError, match=r"b: expected the shape of a, \(3, 2\), got \(3,\)"):
        pair_points(x, torch.ones(3), names=("a", "b"))
