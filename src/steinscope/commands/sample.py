"""`steinscope sample`."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from steinscope.commands.inputs import SeedOption
from steinscope.commands.options import Count, Flag
from steinscope.commands.outputs import check_output, write_output
from steinscope.errors import InputError
from steinscope.support.checks import check_sample_size, check_steps

__all__ = ["sample"]


def sample(
    run: Path,
    /,
    *,
    n: Annotated[Count, Parameter(name=["-n", "--n"])] = 1000,
    out: Path,
    sampler: Literal["mala", "hmc"] = "mala",
    steps: Count = 1000,
    step_size: float | None = None,
    seed: SeedOption = 0,
    quiet: Flag = False,
) -> None:
    """Draw samples from the model of a run of steinscope train.

    A Gaussian is sampled exactly. Each sample of an EBM is the end of a chain of its own, which starts at the
    Gaussian that is part of the model; modes far apart may not get their right shares.

    Examples:

        steinscope sample runs/moons -n 1000 --out samples.npy

        steinscope sample runs/moons -n 200 --sampler hmc --steps 300 --out samples.csv

    Parameters
    ----------
    run
        The directory of the run.
    n
        How many samples.
    out
        Write them to this .npy or .csv file. A .csv file begins with the names of the columns of the data, if they have
        any.
    sampler
        Langevin dynamics with acceptance, or Hamiltonian Monte Carlo.
    steps
        Steps of each chain.
    step_size
        The size of a step; by default one with which about 60% of the steps are accepted.
    seed
        The source of all that is random.
    quiet
        Print nothing but errors.
    """
    suffix = out.suffix.lower()
    if suffix not in (".npy", ".csv"):
        raise InputError("out", f"expected a name that ends in .npy or .csv, got {out.name}")
    check_output(out, "out", suffix)
    check_sample_size("n", n)
    check_steps("steps", steps)
    if not run.exists():
        raise InputError("run", f"there is no directory {run}")
    import numpy as np

    from steinscope.samplers.tuned import draw_samples
    from steinscope.training.directory import load_run

    loaded = load_run(run)
    samples, how = draw_samples(
        loaded.model, n, sampler=sampler, steps=steps, step_size=step_size, seed=seed, progress=not quiet
    )
    buffer = io.BytesIO()
    if suffix == ".npy":
        np.save(buffer, samples)
    else:
        # Of a run on a table with names the samples have the same line of names.
        names = getattr(loaded, "names", None)
        if names is not None:
            line = io.StringIO()
            csv.writer(line, lineterminator="\n").writerow(names)
            buffer.write(line.getvalue().encode())
        np.savetxt(buffer, samples.reshape(len(samples), -1), delimiter=",")
    write_output(out, buffer.getvalue(), "out")
    if not quiet:
        print(f"{n} samples of {run} at step {loaded.step}: {how}\nsamples: {out}")
