"""Independent work in processes and on a cluster."""

import os
import signal
import time
from functools import partial

import numpy as np
import pytest
import torch
from joblib import parallel_config

from steinscope import InputError, compare, discrepancy, gof_test
from steinscope.experiments import runner
from steinscope.experiments.runner import Experiment, reproduce
from steinscope.support.jobs import as_they_end, on_cluster, run_jobs

from helpers import normal

KEYS = {"folds": 3, "critics": "closed form", "seed": 1}


def work(number):
    x = torch.randn(500, 50, generator=torch.Generator().manual_seed(number))
    return torch.get_num_threads(), float(torch.linalg.eigvalsh(x.T @ x).sum()), os.getpid()


@pytest.fixture(scope="module")
def cluster():
    """A scheduler and two workers on loopback, each a process of its own."""
    from distributed import LocalCluster

    with LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None) as cluster:
        yield cluster


@pytest.mark.slow
def test_results_are_the_same_for_any_number_of_jobs():
    tasks = [partial(work, number) for number in range(6)]
    threads = torch.get_num_threads()
    one, two = (run_jobs(tasks, jobs) for jobs in (1, 2))
    assert [result[:2] for result in one] == [result[:2] for result in two]
    assert {result[0] for result in one} == {1} and torch.get_num_threads() == threads
    assert {result[2] for result in one} == {os.getpid()} != {result[2] for result in two}


def test_no_tasks_need_no_processes():
    assert run_jobs([], 2) == [] == list(as_they_end([], 2))


@pytest.mark.slow
def test_a_cluster_gives_the_same_as_this_machine(cluster):
    x = normal(400, 4)
    models = {"right": -x, "wide": -x / 1.3}
    here = compare(models, x, jobs=1, **KEYS)
    with on_cluster(cluster.scheduler_address):
        on_all = compare(models, x, **KEYS)
        estimate = discrepancy(x, -x, **KEYS)
        tested = gof_test(x, -x, critics="closed form")
    with cluster.get_client(), parallel_config(backend="dask"):
        by_joblib = compare(models, x, jobs=2, **KEYS)
    for name in here.names:
        for other in (on_all, by_joblib):
            assert np.array_equal(other.estimates[name].values, here.estimates[name].values)
    alone = gof_test(x, -x, critics="closed form", jobs=1)
    assert tested.pvalue == alone.pvalue and [c.z for c in tested.critics] == [c.z for c in alone.critics]
    assert tested.explain().total == alone.explain().total
    assert np.array_equal(estimate.values, discrepancy(x, -x, jobs=1, **KEYS).values)


@pytest.mark.slow
def test_work_is_done_by_the_workers(cluster):
    with on_cluster(cluster.scheduler_address):
        pids = {pid for _, _, pid in run_jobs([partial(work, number) for number in range(20)])}
    assert os.getpid() not in pids and len(pids) == 2


def _trial(trial, out):
    """The first trial waits for a file, and the worker that has it is killed meanwhile."""
    if trial["number"] == 0 and not os.path.exists(trial["ready"]):
        with open(trial["ready"], "w") as file:
            file.write(str(os.getpid()))
        while True:
            time.sleep(0.05)
    return {"square": trial["number"] ** 2, "trace": work(trial["number"])[1]}


@pytest.mark.slow
def test_a_killed_worker_loses_no_trial(cluster, tmp_path, monkeypatch):
    ready = tmp_path / "ready"
    experiment = Experiment(
        scales={"smoke": {"count": 8}},
        trials=lambda settings: [{"number": number, "ready": str(ready)} for number in range(settings["count"])],
        run=_trial,
        report=lambda results, out: [str(result) for _, result in results],
    )
    monkeypatch.setattr(runner, "load", lambda name: experiment)
    killed = []

    def advance_and_kill(path, content, write=runner.write_file):
        """With the first record that is written, the worker that waits is killed."""
        write(path, content)
        while not killed and not (ready.exists() and ready.read_text()):
            time.sleep(0.05)
        if not killed:
            killed.append(int(ready.read_text()))
            os.kill(killed[0], signal.SIGKILL)

    monkeypatch.setattr(runner, "write_file", advance_and_kill)
    with on_cluster(cluster.scheduler_address):
        lines = reproduce("fake", "smoke", tmp_path / "out")
    assert killed and len(lines) == len(list((tmp_path / "out" / "trials").iterdir())) == 8
    # The same to the bit as on this machine, where the first trial need not wait any more.
    assert lines == reproduce("fake", "smoke", tmp_path / "here", jobs=1)


@pytest.mark.parametrize("address", ["tcp://127.0.0.1:1", "nonsense://a", "tcp://"])
def test_a_scheduler_that_cannot_be_reached_is_one_line(address, monkeypatch, command, tmp_path):
    monkeypatch.setattr("steinscope.support.jobs._PATIENCE_SECONDS", 1)
    with pytest.raises(InputError, match="cluster: no scheduler can be reached at"), on_cluster(address):
        pass
    monkeypatch.chdir(tmp_path)
    np.save("x.npy", normal(100, 2).numpy())
    for arguments in (["reproduce", "null", "--scale", "smoke"], ["compare", "x.npy", "--score", "x.npy"]):
        done = command(*arguments, "--cluster", address)
        assert done.code == 2 and done.out == "" and len(done.err.splitlines()) == 1
        assert done.err.startswith("steinscope: cluster: no scheduler can be reached at")


def test_jobs_must_be_a_number():
    with pytest.raises(InputError, match="jobs: expected a whole number from 1 on, got 0"):
        run_jobs([partial(work, 0)], 0)
