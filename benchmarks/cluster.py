"""`python -m benchmarks.cluster` tests points in .npy shards on a cluster of this machine: time, memory and traffic.

Points and scores are written to a temporary directory first, which is removed in the end.
"""

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from steinscope import gof_test

CRITICS = ("mean", "linear", "additive")


def write_shards(folder, n, d, shards):
    """Standard normal points in float32, and the scores of a standard normal model."""
    for kind in ("points", "scores"):
        (folder / kind).mkdir()
    for number in range(shards):
        x = np.random.default_rng([10_000, number]).standard_normal((n // shards, d), dtype=np.float32)
        np.save(folder / "points" / f"{number:04}.npy", x)
        np.save(folder / "scores" / f"{number:04}.npy", -x)


def peak_mib():
    """The largest memory that this process has had at once, as Linux counts it."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmHWM")).split()[1]) / 2**10


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--points", type=int, default=10_000_000)
    parser.add_argument("--dim", type=int, default=50)
    parser.add_argument("--shards", type=int, default=40)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--critics", nargs="+", default=CRITICS)
    options = parser.parse_args()
    from distributed import Client, LocalCluster

    with tempfile.TemporaryDirectory(prefix="steinscope-") as name:
        folder = Path(name)
        write_shards(folder, options.points, options.dim, options.shards)
        with (
            LocalCluster(n_workers=options.workers, threads_per_worker=1, dashboard_address=":0") as cluster,
            Client(cluster) as client,
        ):
            start = time.perf_counter()
            result = gof_test(folder / "points", folder / "scores", critics=list(options.critics))
            seconds = time.perf_counter() - start
            found: Any = client.run(peak_mib)
            peaks = found.values()
    print(result)
    print(f"{seconds:.0f} s; at most {', '.join(f'{peak:.0f}' for peak in peaks)} MiB in the workers")
    print(f"at most {peak_mib():.0f} MiB in the process that asks")


if __name__ == "__main__":
    main()
