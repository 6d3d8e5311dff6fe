"""`steinscope reproduce`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from steinscope.commands.inputs import refuse_torchrun
from steinscope.commands.options import Count, Flag
from steinscope.errors import InputError
from steinscope.support.files import check_directory
from steinscope.support.jobs import on_cluster

__all__ = ["reproduce"]


def reproduce(
    name: str | None = None,
    /,
    *,
    scale: Literal["smoke", "quick", "paper"] = "quick",
    out: Path | None = None,
    set_: Annotated[tuple[str, ...], Parameter(show_default=False)] = (),
    jobs: Count | None = None,
    cluster: str | None = None,
    redraw: Path | None = None,
    list_: Flag = False,
) -> None:
    """Run an experiment of the paper. A run that was stopped resumes where it was.

    Examples:

        steinscope reproduce --list

        steinscope reproduce gaussian --scale quick

        steinscope reproduce gof --scale paper --set 'shapes=[[50,40]]' --out results/gof-50-40

        steinscope reproduce gof --scale paper --cluster tcp://10.0.0.1:8786

        steinscope reproduce gof --redraw results/gof-quick/gof.csv

    Parameters
    ----------
    name
        The experiment; see --list.
    scale
        smoke for seconds, quick for minutes, paper for the paper's own size.
    out
        The directory for figures, tables and finished trials; by default results/NAME-SCALE.
    set_
        Replace a setting of the scale, as KEY=VALUE with VALUE in JSON, such as --set repetitions=10. May be repeated.
    jobs
        How many trials run at once; by default as many as there are processors.
    cluster
        Run the trials on a Dask cluster, whose scheduler listens at this address, such as tcp://10.0.0.1:8786.
        Needs pip install 'steinscope[cluster]' here and on the workers.
    redraw
        Draw the figure from a table that the experiment wrote, beside it and with its name, and run nothing.
    list_
        List the experiments.
    """
    from steinscope.experiments.runner import EXPERIMENTS
    from steinscope.experiments.runner import redraw as draw_again
    from steinscope.experiments.runner import reproduce as run

    if list_:
        width = max(map(len, EXPERIMENTS))
        print("\n".join(f"{key:<{width}}  {text}" for key, text in EXPERIMENTS.items()))
        return
    if name is None:
        raise InputError("name", f"expected one of {', '.join(EXPERIMENTS)}, got none")
    if redraw is not None:
        try:
            print(draw_again(name, redraw))
        except InputError as error:
            raise error.renamed("--redraw") if error.argument == "table" else error from None
        return
    refuse_torchrun("start reproduce without it, with --jobs for several processes or --cluster for several machines")
    check_directory(out, "out")
    try:
        with on_cluster(cluster):
            lines = run(name, scale, out, options=_read_settings(set_), jobs=jobs)
    except InputError as error:
        # What the library calls options is --set here.
        raise error.renamed("--set") if error.argument == "options" else error from None
    print("\n".join(lines))


def _read_settings(assignments: tuple[str, ...]) -> dict[str, Any]:
    options = {}
    for assignment in assignments:
        key, equals, value = assignment.partition("=")
        try:
            options[key] = json.loads(value)
        except ValueError:
            equals = ""
        if not equals:
            raise InputError("--set", f"expected KEY=VALUE with VALUE in JSON, such as dims=[50], got {assignment!r}")
    return options
