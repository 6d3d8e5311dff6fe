"""`steinscope train` and `steinscope sample`."""

from __future__ import annotations

import io
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from steinscope.commands.inputs import Flag, SeedOption
from steinscope.commands.outputs import check_directory, check_output, write_output
from steinscope.errors import InputError, NonFiniteError

if TYPE_CHECKING:
    from steinscope.runs import Settings
    from steinscope.training import TrainResult

__all__ = ["sample", "train"]


def train(
    data: str | None = None,
    /,
    *,
    config: Path | None = None,
    out: Path | None = None,
    model: Literal["ebm", "gaussian"] | None = None,
    width: int | None = None,
    depth: int | None = None,
    objective: str | None = None,
    l2: Annotated[float | None, Parameter(name="--l2")] = None,
    critic_steps: int | None = None,
    steps: int | None = None,
    batch_size: int | None = None,
    lr: float | None = None,
    auxiliary_lr: float | None = None,
    lr_decay: bool | None = None,
    weight_decay: float | None = None,
    average: float | None = None,
    noise: float | None = None,
    seed: SeedOption | None = None,
    checkpoint_every: int | None = None,
    log_every: int | None = None,
    quiet: Flag = False,
) -> None:
    """Train a model on points. A run that was stopped, even killed, goes on where it was.

    The directory of the run is then a model for steinscope test, compare and sample. A report is in it, too.
    Under torchrun the processes share every batch.

    Examples:

        steinscope train moons --steps 2000

        steinscope train points.npy --objective score-matching --out runs/mine

        steinscope train --config run.toml --seed 1 --out runs/seed-1

        torchrun --standalone --nproc-per-node 2 -m steinscope train moons --steps 2000

    Parameters
    ----------
    data
        A data set in the plane (swissroll, 8gaussians, pinwheel, circles, moons, 2spirals, checkerboard, rings), or a
        .npy, .npz, .csv or .parquet file with one point in each row.
    config
        A TOML file with any of these settings, data among them, such as: steps = 5000. Options go first.
    out
        The directory of the run; by default runs/NAME.
    model
        An energy-based model (the default) or a Gaussian.
    width
        Units in each hidden layer of the EBM (128 by default).
    depth
        Its hidden layers (2 by default).
    objective
        lsd (the default), score-matching, sliced-score-matching, denoising-score-matching, nce, cnce, likelihood,
        contrastive-divergence or short-run.
    l2
        The penalty λ of the critic, for the objective lsd.
    critic_steps
        Steps of the critic for each step of the model, for the objective lsd.
    steps
        Steps of the model in all (2000 by default).
    batch_size
        Points in each batch (128 by default).
    lr
        The learning rate of the model (0.001 by default).
    auxiliary_lr
        That of the critic or log-normaliser; by default the same.
    lr_decay
        Let both fall to zero.
    weight_decay
        Added to the gradient as weight_decay times the weights.
    average
        Keep an average of the parameters with this coefficient, such as 0.999; it is then the model of the run.
    noise
        Add noise of this standard deviation to the points at first. It falls to zero, and helps where modes lie apart.
    seed
        The source of all that is random (0 by default).
    checkpoint_every
        Steps between two checkpoints (500 by default).
    log_every
        Steps between two log points (50 by default).
    quiet
        Print nothing but errors.
    """
    from steinscope.distributed import processes
    from steinscope.runs import read_settings, train_run

    given = {
        "data": data,
        "model": model,
        "width": width,
        "depth": depth,
        "objective": objective,
        "l2": l2,
        "critic_steps": critic_steps,
        "steps": steps,
        "batch_size": batch_size,
        "lr": lr,
        "auxiliary_lr": auxiliary_lr,
        "lr_decay": lr_decay,
        "weight_decay": weight_decay,
        "average": average,
        "noise": noise,
        "seed": seed,
        "checkpoint_every": checkpoint_every,
        "log_every": log_every,
    }
    settings = read_settings(config, given)
    out = out or Path("runs") / Path(settings.data).stem
    check_directory(out, "out")
    with processes() as shared:
        result = train_run(settings, out, progress=not quiet)
    if shared.writes:
        _finish_run(settings, out, result, quiet)


def _finish_run(settings: Settings, out: Path, result: TrainResult, quiet: bool) -> None:
    """Write the report of a run, and say where everything is."""
    from steinscope.report import report_training
    from steinscope.runs import load_run, run_points

    run = load_run(out)
    points = _some_points(run_points(settings.data))
    page = report_training(
        result,
        model=run.model,
        data=settings.data,
        settings={"data": settings.data, "model": settings.model, "width": settings.width, "depth": settings.depth},
        points=points,
        samples=_report_samples(run.model, settings.seed),
    )
    write_output(out / "report.html", page, "out")
    if not quiet:
        print(result)
        print(f"run: {out}\nreport: {out / 'report.html'}")
        print(f"next: steinscope sample {shlex.quote(str(out))} -n 1000 --out samples.npy")


def _report_samples(model: Any, seed: int) -> Any:
    """Samples to look at; none where the chains of a model that has gone astray leave all bounds."""
    from steinscope.sampling import draw_samples

    try:
        return draw_samples(model, 500, steps=300, seed=seed, progress=False)[0]
    except NonFiniteError:
        return None


def _some_points(points: Any, count: int = 1500) -> Any:
    from steinscope.data.toy import draw_toy

    if isinstance(points, str):
        return draw_toy(points, count, seed=0).numpy()
    return points[:: max(1, len(points) // count)][:count]


def sample(
    run: Path,
    /,
    *,
    n: Annotated[int, Parameter(name=["-n", "--n"])] = 1000,
    out: Path,
    sampler: Literal["mala", "hmc"] = "mala",
    steps: int = 1000,
    step_size: float | None = None,
    seed: SeedOption = 0,
    quiet: Flag = False,
) -> None:
    """Draw samples from the model of a run of steinscope train.

    A Gaussian is sampled exactly. Of an EBM each sample is the end of a chain of its own, which starts at the
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
        Write them to this .npy or .csv file.
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
        raise InputError(f"out: expected a name that ends in .npy or .csv, got {out.name}")
    check_output(out, "out", suffix)
    if n < 1:
        raise InputError(f"n: expected at least 1, got {n}")
    if not run.exists():
        raise InputError(f"run: there is no directory {run}")
    import numpy as np

    from steinscope.runs import load_run
    from steinscope.sampling import draw_samples

    loaded = load_run(run)
    samples, how = draw_samples(
        loaded.model, n, sampler=sampler, steps=steps, step_size=step_size, seed=seed, progress=not quiet
    )
    buffer = io.BytesIO()
    if suffix == ".npy":
        np.save(buffer, samples)
    else:
        np.savetxt(buffer, samples.reshape(len(samples), -1), delimiter=",")
    write_output(out, buffer.getvalue(), "out")
    if not quiet:
        print(f"{n} samples of {run} at step {loaded.step}: {how}\nsamples: {out}")
