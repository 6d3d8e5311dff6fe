"""Points that stay on the workers of a cluster: the numbers are those of one array."""

import os
import signal
import threading
import time
from itertools import pairwise

import dask.array
import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
import torch
from joblib import parallel_config

from steinscope import InputError, gof_test
from steinscope.cluster.pieces import FileRows
from steinscope.cluster.points import points_on_cluster
from steinscope.models import Gaussian

from helpers import normal

# Each block has as many points as are looked at to begin with, and a few more.
N, D, BLOCKS = 3 * 8192 + 500, 3, 3
KEYS = {"critics": "closed form", "blocks": BLOCKS}
CUTS = [5000, 5001, 20_000]


@pytest.fixture(scope="module")
def cluster():
    """A scheduler and two workers on loopback, each a process of its own."""
    from distributed import LocalCluster

    with LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0") as cluster:
        yield cluster


@pytest.fixture
def client(cluster):
    with cluster.get_client() as client:
        client.wait_for_workers(2)
        yield client


@pytest.fixture(scope="module")
def points():
    return 0.01 + normal(N, D).double().numpy()


@pytest.fixture(scope="module")
def one(points):
    """The test of one array."""
    return gof_test(points, -points, repeats=1, **KEYS)


@pytest.fixture
def folder(tmp_path, points):
    for name, array in (("x", points), ("score", -points)):
        (tmp_path / name).mkdir()
        for number, part in enumerate(np.split(array, CUTS)):
            np.save(tmp_path / name / f"{number}.npy", part)
    return tmp_path


def lazy(array, rows=7000):
    return dask.array.from_array(array, (rows, 2))


def check_same(result, one):
    assert result.pvalue == pytest.approx(one.pvalue, rel=1e-10, abs=0)
    assert result.statistic == pytest.approx(one.statistic, rel=1e-10, abs=0)
    for critic, expected in zip(result.critics, one.critics, strict=True):
        assert critic.z == pytest.approx(expected.z, rel=1e-9, abs=1e-10)
        np.testing.assert_allclose(critic.block_z, expected.block_z, rtol=1e-8, atol=1e-9)
    assert result.n == N and result.dim == D


@pytest.mark.slow
def test_a_test_where_the_points_are_is_that_of_one_array(client, folder, points, one):
    model = Gaussian(torch.zeros(D).double())
    kept = lazy(points)
    cases = {
        "arrays": (kept, -kept),
        "arrays that are divided in different ways": (kept, lazy(-points, 6000)),
        "lengths that are not known": (kept[kept[:, 0] > -100], -kept[kept[:, 0] > -100]),
        "a model": (kept, model),
        "shards": (folder / "x", folder / "score"),
        "shards and a model": (sorted((folder / "x").iterdir()), model),
    }
    for name, (x, scores) in cases.items():
        result = gof_test(x, scores, repeats=1, **KEYS)
        check_same(result, one)
        (note,) = [note for note in result.notes if note.startswith("the points stayed on the cluster")]
        assert "not run" not in note, name
    with parallel_config(backend="dask"):
        check_same(gof_test(kept, -kept, repeats=1, **KEYS), one)


@pytest.mark.slow
def test_several_orders_and_findings_are_those_of_one_array(client, points):
    x, keys = points + 0.05, {"critics": ["mean", "linear", "additive"], "blocks": BLOCKS, "repeats": 2}
    result, alone = (gof_test(rows, -rows, **keys) for rows in (lazy(x), x))
    check_same(result, alone)
    assert result.rejected and [str(f) for f in result.findings] == [str(f) for f in alone.findings] != []


@pytest.mark.slow
def test_parquet_shards_and_bounded_models(client, tmp_path):
    x = np.exp(normal(N, 2).double().numpy())
    for number, part in enumerate(np.split(x, CUTS)):
        table = pyarrow.table({name: column for name, column in zip("ab", part.T, strict=True)})
        pyarrow.parquet.write_table(table, tmp_path / f"{number}.parquet", row_group_size=999)
    each = torch.distributions.LogNormal(torch.zeros(2).double(), torch.ones(2).double())
    model = torch.distributions.Independent(each, 1)
    keys = {"critics": ["linear", "additive"], "blocks": BLOCKS, "repeats": 1}
    result, alone = (gof_test(rows, model, **keys) for rows in (tmp_path, x))
    assert result.pvalue == pytest.approx(alone.pvalue, rel=1e-10)
    assert any("stayed on the cluster" in note for note in result.notes)


@pytest.mark.slow
def test_few_rows_travel_and_their_bytes_are_counted(client, points):
    found = points_on_cluster(lazy(points), -lazy(points))
    assert found is not None and len(found) == N and not found.traffic.rows
    received = found.traffic.received
    rows = torch.tensor([20_000, 5, 3, 7001])
    x, score = found.take(rows)
    assert np.array_equal(x, points[rows]) and np.array_equal(score, -points[rows])
    assert found.traffic.rows == 4 and 4 * D * 2 * 8 < found.traffic.received - received < 4000


@pytest.mark.slow
def test_fewer_points_travel_as_a_whole(client):
    x = normal(900, 4).double().numpy()
    result = gof_test(lazy(x), -lazy(x), critics="closed form")
    assert result.pvalue == pytest.approx(gof_test(x, -x, critics="closed form").pvalue, rel=1e-10)
    assert not any("stayed on the cluster" in note for note in result.notes)


class WaitingGaussian(Gaussian):
    """A model that says which process it runs in, and waits there once."""

    def __init__(self, ready):
        super().__init__(torch.zeros(D).double())
        self.ready, self.calls = ready, 0

    def score(self, x):
        self.calls += 1
        # Beyond the first look at all partitions, in the middle of the rounds.
        if self.calls > 12 and not self.ready.exists():
            self.ready.write_text(str(os.getpid()))
            time.sleep(600)
        return super().score(x)


@pytest.mark.slow
def test_a_killed_worker_loses_nothing(client, tmp_path, points, one):
    ready, killed = tmp_path / "ready", []

    def kill():
        while not (ready.exists() and ready.read_text()):
            time.sleep(0.05)
        killed.append(int(ready.read_text()))
        os.kill(killed[0], signal.SIGKILL)

    thread = threading.Thread(target=kill, daemon=True)
    thread.start()
    result = gof_test(lazy(points), WaitingGaussian(ready), repeats=1, **KEYS)
    thread.join()
    assert killed and killed[0] != os.getpid()
    check_same(result, one)


def damaged(folder):
    path = folder / "x" / "2.npy"
    path.write_bytes(path.read_bytes()[:500])
    return folder / "x"


def with_nan(folder):
    rows = np.load(folder / "x" / "2.npy")
    rows[17, 1] = np.nan
    np.save(folder / "x" / "2.npy", rows)
    return folder / "x"


def narrow(folder):
    np.save(folder / "x" / "2.npy", np.ones((10, 2)))
    return folder / "x"


def broken(block):
    raise RuntimeError("no such\ntable")


@pytest.mark.slow
@pytest.mark.parametrize(
    "make, problem",
    [
        (damaged, "x: .*npy cannot be read: "),
        (with_nan, r"x: .*2.npy: row 17 holds nan; every value must be finite"),
        (narrow, "2.npy has rows of shape"),
        (
            lambda folder: lazy(np.ones((N, D))).map_blocks(broken, meta=np.empty((0, D))),
            "x: cannot be computed on the cluster: RuntimeError: ",
        ),
        (lambda folder: lazy(np.full((N, D), np.inf)), "x: partition 0: row 0 holds inf"),
    ],
)
def test_what_cannot_be_used_is_one_line(client, folder, make, problem):
    with pytest.raises(InputError, match=problem) as raised:
        gof_test(make(folder), Gaussian(torch.zeros(D).double()), **KEYS)
    assert "\n" not in str(raised.value)


@pytest.mark.slow
def test_scores_of_another_shape_are_one_line(client, folder, points):
    for x, scores in ((lazy(points), lazy(-points[1:])), (folder / "x", sorted((folder / "score").iterdir())[1:])):
        with pytest.raises(InputError, match="model: an array of scores must have the shape of x"):
            gof_test(x, scores, **KEYS)
    with pytest.raises(InputError, match="model: does not depend on x: its score is zero"):
        gof_test(lazy(points), lazy(0 * points), **KEYS)


@pytest.mark.slow
def test_critics_that_need_single_points(client, points):
    x = lazy(points)
    with pytest.raises(InputError, match="critics: 'mlp' learns from single points, and these stay on the cluster"):
        gof_test(x, -x, critics=["linear", "mlp"], blocks=BLOCKS)
    result = gof_test(x, Gaussian(torch.zeros(D).double()), blocks=BLOCKS, repeats=1)
    assert [critic.name for critic in result.critics] == ["mean", "linear", "additive", "kernel"]
    assert any(note.endswith("critics that need single points were not run: mlp, modes") for note in result.notes)
    with pytest.raises(InputError, match="explain: the points stayed on the cluster"):
        result.explain()


def test_pieces_are_the_rows_of_their_files(folder, points, monkeypatch):
    monkeypatch.setattr("steinscope.cluster.pieces._PIECE_BYTES", 4000 * D * 8)
    rows = FileRows.of(folder / "x", "x")
    bounds = rows.bounds()
    assert bounds[0][0] == 0 and bounds[-1][1] == N and all(a[1] == b[0] for a, b in pairwise(bounds))
    assert max(stop - start for start, stop in bounds) == 4000
    for start, stop in (*bounds, (4990, 20_010), (0, N)):
        assert np.array_equal(rows.cut(start, stop).open("x")[:], points[start:stop])


def test_suffixes_may_be_in_capitals(tmp_path, points):
    """As they may be where there is no cluster."""
    np.save(tmp_path / "x.npy", points)
    (tmp_path / "x.npy").rename(tmp_path / "x.NPY")
    rows = FileRows.of(tmp_path, "x")
    assert np.array_equal(rows.cut(5, 50).open("x")[:], points[5:50])
