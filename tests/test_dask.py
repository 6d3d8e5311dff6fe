"""Points and scores that Dask holds."""

import dask
import dask.array
import numpy as np
import pytest
import torch

from steinscope import InputError, compare, discrepancy, gof_test
from steinscope.models import Gaussian
from steinscope.points import check_rows
from steinscope.shards import open_dask

from helpers import normal

CHUNKS = ((100, 1, 399, 400), (3, 1))


@pytest.fixture(autouse=True)
def in_this_thread():
    with dask.config.set(scheduler="synchronous"):
        yield


def points():
    return 0.05 + normal(900, 4).double().numpy()


def test_a_test_of_a_dask_array_is_that_of_one_array():
    x = points()
    lazy, whole = dask.array.from_array(x, CHUNKS), gof_test(x, -x, critics="closed form")
    for rows, scores in ((lazy, -lazy), (lazy, Gaussian(torch.zeros(4).double())), (x, -lazy)):
        result = gof_test(rows, scores, critics="closed form")
        assert result.pvalue == pytest.approx(whole.pvalue, rel=1e-10)
        assert result.statistic == pytest.approx(whole.statistic, rel=1e-10)


def test_a_discrepancy_of_a_dask_array_is_that_of_one_array():
    x, options = points(), {"critics": "closed form", "folds": 2}
    lazy = dask.array.from_array(x, CHUNKS)
    assert discrepancy(lazy, -lazy, **options).value == pytest.approx(discrepancy(x, -x, **options).value, rel=1e-10)


def test_partitions_are_computed_one_after_the_other_and_once():
    sizes = []

    def seen(block):
        sizes.append(len(block))
        return block

    x = points()
    lazy = dask.array.from_array(x, ((100, 1, 399, 400), (4,))).map_blocks(seen, meta=np.empty((0, 4)))
    sizes.clear()
    assert np.array_equal(open_dask(lazy, "x")[:], x) and sizes == [100, 1, 399, 400]


@pytest.mark.parametrize("dtype", [bool, np.int8, np.float16, np.float32, np.float64])
def test_the_type_to_compute_in_is_that_of_one_array(dtype):
    x = (normal(50, 2).numpy() * 3).astype(dtype)
    one = gof_test(x, -x.astype(float), critics="linear")
    assert gof_test(dask.array.from_array(x, (20, 2)), -x.astype(float), critics="linear").pvalue == one.pvalue


def test_lengths_of_partitions_need_not_be_known():
    x = points()
    lazy = dask.array.from_array(x, (300, 4))
    kept = lazy[lazy[:, 0] > 0]
    assert np.isnan(kept.shape[0]) and np.array_equal(open_dask(kept, "x")[:], x[x[:, 0] > 0])


def broken(block):
    raise RuntimeError("no such\ntable")


@pytest.mark.parametrize(
    "make, problem",
    [
        (lambda: dask.array.ones((50, 2), dtype=complex), "x: expected real numbers, got a Dask array of complex128"),
        (lambda: dask.array.ones(()), "x: expected rows of points, got a single number"),
        (lambda: dask.array.ones((0, 2)), "x: expected at least one row and one column, got shape"),
        (lambda: dask.array.ones((50, 2)).map_blocks(broken, meta=np.empty((0, 2))), "x: partition 0 cannot be comp"),
        (lambda: dask.array.from_array(np.array([[1.0], [2.0], [np.nan]]), (2, 1)), "x: row 2 holds nan"),
    ],
)
def test_what_cannot_be_used_is_one_line(make, problem):
    with pytest.raises(InputError, match=problem) as raised:
        check_rows(make(), "x")
    assert "\n" not in str(raised.value)


def test_a_ranking_takes_scores_of_dask():
    x, options = points(), {"critics": "closed form", "folds": 2}
    lazy = dask.array.from_array(x, CHUNKS)
    ranking = compare({"a": -lazy, "b": -lazy / 2}, x, **options)
    one = compare({"a": -x, "b": -x / 2}, x, **options)
    assert ranking.estimates["b"].value == pytest.approx(one.estimates["b"].value, rel=1e-10)


@pytest.mark.slow
def test_partitions_may_lie_on_a_cluster():
    from distributed import LocalCluster

    x = points()
    with (
        dask.config.set(scheduler=None),
        LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None) as cluster,
        cluster.get_client() as client,
    ):
        lazy = client.persist(dask.array.from_array(x, CHUNKS))
        pvalue = gof_test(lazy, -lazy, critics="closed form").pvalue
    assert pvalue == pytest.approx(gof_test(x, -x, critics="closed form").pvalue, rel=1e-10)
