"""Rows that lie in several files."""

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from steinscope import InputError, discrepancy, gof_test
from steinscope.models import Gaussian
from steinscope.report.rows import flat_rows
from steinscope.shards import Shards, open_shards

from helpers import normal


@pytest.fixture
def folder(tmp_path):
    """Points and scores in shards of several lengths, and whole."""
    x = 0.05 + normal(900, 4).double().numpy()
    for name, array in (("x", x), ("score", -x)):
        (tmp_path / name).mkdir()
        for number, part in enumerate(np.split(array, [100, 101, 500])):
            np.save(tmp_path / name / f"part-{number}.npy", part)
    (tmp_path / "x" / "notes.txt").write_text("not a shard")
    return tmp_path, x


def paths(folder):
    return sorted(folder.glob("part-*"))


@given(st.lists(st.integers(0, 5), min_size=1, max_size=6), st.data())
def test_rows_are_those_of_one_array(lengths, data):
    whole = np.arange(2 * sum(lengths)).reshape(-1, 2)
    rows = Shards(np.split(whole, np.cumsum(lengths)[:-1]))
    assert rows.shape == whole.shape and len(rows) == len(whole) and rows.ndim == 2
    start, stop = (data.draw(st.integers(-3, sum(lengths) + 3)) for _ in range(2))
    step = data.draw(st.sampled_from([None, 1, 2]))
    assert np.array_equal(rows[start:stop:step], whole[start:stop:step])
    if len(whole):
        index = np.sort(data.draw(st.lists(st.integers(0, len(whole) - 1), min_size=1)))
        assert np.array_equal(rows[index], whole[index])


def test_a_test_of_shards_is_that_of_one_array(folder):
    place, x = folder
    whole = gof_test(x, -x, critics="closed form")
    for points, scores in (
        (place / "x", place / "score"),
        (str(place / "x"), paths(place / "score")),
        (paths(place / "x"), Gaussian(torch.zeros(4).double())),
        (x, [str(path) for path in paths(place / "score")]),
    ):
        result = gof_test(points, scores, critics="closed form")
        assert result.pvalue == pytest.approx(whole.pvalue, rel=1e-10)
        assert result.statistic == pytest.approx(whole.statistic, rel=1e-10) and result.n == 900
    shown = gof_test(place / "x", place / "score", critics="linear").explain()
    assert shown.total == pytest.approx(gof_test(x, -x, critics="linear").explain().total, rel=1e-10)


def test_a_discrepancy_of_shards_is_that_of_one_array(folder):
    place, x = folder
    options = {"critics": "closed form", "folds": 2}
    assert discrepancy(place / "x", place / "score", **options).value == pytest.approx(
        discrepancy(x, -x, **options).value, rel=1e-10
    )


def test_the_order_of_a_list_is_kept(folder):
    place, x = folder
    rows = open_shards(paths(place / "x")[::-1], "x")
    assert np.array_equal(rows[:], np.concatenate(np.split(x, [100, 101, 500])[::-1]))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_parquet_shards(tmp_path, dtype):
    x = normal(900, 4).numpy().astype(dtype)
    for number, part in enumerate(np.split(x, [250, 600])):
        table = pyarrow.table({name: column for name, column in zip("abcd", part.T, strict=True)})
        pyarrow.parquet.write_table(table, tmp_path / f"{number}.parquet", row_group_size=100)
    rows = open_shards(tmp_path, "x")
    assert rows.dtype == dtype and np.array_equal(rows[:], x)
    model = Gaussian(torch.zeros(4))
    in_memory = gof_test(x, model, critics="closed form").pvalue
    assert gof_test(tmp_path, model, critics="closed form").pvalue == pytest.approx(in_memory, rel=1e-10)


def save(path, array):
    np.save(path, array)
    return path


@pytest.mark.parametrize(
    "make, problem",
    [
        (lambda place: place / "nothing.npy", "x: there is no file .*nothing.npy"),
        (lambda place: place, "x: .* holds no .npy or .parquet files"),
        (
            lambda place: [save(place / "a.npy", np.ones((5, 2))), save(place / "b.npy", np.ones((5, 3)))],
            "b.npy has rows",
        ),
        (lambda place: [save(place / "a.npy", np.array(["text"]))], "x: .*a.npy holds <U4 of shape"),
        (
            lambda place: [save(place / "a.npy", np.array([{}], dtype=object))],
            "x: .*a.npy cannot be read: Array can't be memory-mapped",
        ),
        (lambda place: ["a.csv"], "x: expected .npy or .parquet files, all of one kind, got .csv"),
        (lambda place: [save(place / "a.npy", np.array([[1.0], [np.nan]]))], "x: row 1 holds nan"),
        (lambda place: "text", "x: got 'text', which is no directory or file; texts are paths of arrays"),
    ],
)
def test_shards_that_cannot_be_used_are_one_line(tmp_path, make, problem):
    with pytest.raises(InputError, match=problem) as raised:
        gof_test(make(tmp_path), Gaussian(torch.zeros(2)))
    assert "\n" not in str(raised.value)


def test_a_damaged_shard_is_one_line(tmp_path):
    path = save(tmp_path / "a.npy", np.ones((100, 3)))
    path.write_bytes(path.read_bytes()[:500])
    (tmp_path / "b.npy").write_bytes(b"something else")
    (tmp_path / "c.parquet").write_bytes(b"PAR1 and nothing more")
    for damaged, problem in (
        (path, "a.npy cannot be read: "),
        (tmp_path / "b.npy", "b.npy cannot be read: it is no .npy file of numbers"),
        (tmp_path / "c.parquet", "cannot be read: .*c.parquet"),
    ):
        with pytest.raises(InputError, match=f"x: .*{problem}") as raised:
            gof_test([damaged], Gaussian(torch.zeros(3)))
        assert "\n" not in str(raised.value)


def test_chains_are_one_array(folder):
    with pytest.raises(InputError, match="x: chains must be one array, got shards"):
        gof_test(folder[0] / "x", Gaussian(torch.zeros(4)), chains=True)


def test_reports_draw_shards(folder):
    where, x = folder
    np.testing.assert_array_equal(flat_rows(where / "x", "points"), x)


@pytest.mark.parametrize("value", ["", [""]])
def test_an_empty_path_is_not_the_current_directory(value):
    with pytest.raises(InputError, match="^x: expected an array, or the path of a directory or file, got ''$"):
        gof_test(value, np.zeros((3, 2)))
