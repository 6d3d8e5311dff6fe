"""`steinscope train`."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from steinscope.commands.options import Flag, given_options, optional
from steinscope.commands.outputs import write_output
from steinscope.errors import NonFiniteError
from steinscope.registries import OBJECTIVES
from steinscope.settings import RunSettings
from steinscope.support.files import check_directory

if TYPE_CHECKING:
    from steinscope.training.results import TrainResult

__all__ = ["train"]


RunOptions = optional(
    RunSettings,
    leave_out=("data",),
    kinds={"model": Literal["ebm", "gaussian"]},
    texts={"objective": f"One of {OBJECTIVES.listed()}.", "model": "An energy-based model or a Gaussian."},
)
NOTHING_GIVEN = RunOptions()


def train(
    data: str | None = None,
    /,
    *,
    config: Path | None = None,
    out: Path | None = None,
    settings: Annotated[RunOptions, Parameter(name="*")] = NOTHING_GIVEN,  # pyright: ignore[reportInvalidTypeForm]
    quiet: Flag = False,
) -> None:
    """Train a model on points. A run that was stopped, even killed, resumes where it was.

    The directory of the run is then a model for steinscope test, compare and sample. It also holds a report.
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
        A TOML file with any of these settings, data among them, such as: steps = 5000. Options take precedence.
    out
        The directory of the run; by default runs/NAME.
    quiet
        Print nothing but errors.
    """
    from steinscope.training.directory import read_settings, train_run
    from steinscope.training.distributed import processes

    asked = read_settings(config, {"data": data, **given_options(settings)})
    out = out or Path("runs") / Path(asked.data).stem
    check_directory(out, "out")
    with processes() as shared:
        result = train_run(asked, out, progress=not quiet)
    if shared.writes:
        _finish_run(asked, out, result, quiet)


def _finish_run(settings: RunSettings, out: Path, result: TrainResult, quiet: bool) -> None:
    """Write the report of a run, and say where everything is."""
    from steinscope.report import report_training
    from steinscope.training.directory import load_run, run_points

    run = load_run(out)
    points = _some_points(run_points(settings.data, settings.header))
    page = report_training(
        result,
        model=run.model,
        data=settings.data,
        settings={"data": settings.data, "model": settings.model, "width": settings.width, "depth": settings.depth},
        points=points,
        samples=_report_samples(run.model, settings.seed),
        names=run.names,
    )
    write_output(out / "report.html", page, "out")
    if not quiet:
        print(result)
        print(f"run: {out}\nreport: {out / 'report.html'}")
        print(f"next: steinscope sample {shlex.quote(str(out))} -n 1000 --out samples.npy")


def _report_samples(model: Any, seed: int) -> Any:
    """Samples to look at; none where the chains of a model that has gone astray leave all bounds."""
    from steinscope.samplers.tuned import draw_samples

    try:
        return draw_samples(model, 500, steps=300, seed=seed, progress=False)[0]
    except NonFiniteError:
        return None


def _some_points(points: Any, count: int = 1500) -> Any:
    from steinscope.data.toy import draw_toy

    if isinstance(points, str):
        return draw_toy(points, count, seed=0).numpy()
    return points[:: max(1, len(points) // count)][:count]
