"""The `steinscope` command. torch is imported only by the commands that need it."""

from __future__ import annotations

import json
import os
import re
import sys
import time
import warnings
from pathlib import Path
from typing import Annotated, Any, Literal, NoReturn

from cyclopts import App, CycloptsError, Parameter, UnusedCliTokensError

from steinscope import __version__
from steinscope.commands.fit import compare, test
from steinscope.commands.inputs import Flag
from steinscope.commands.outputs import check_directory
from steinscope.commands.runs import sample, train
from steinscope.errors import DownloadError, InputError, NonFiniteError

__all__ = ["app", "main"]

_PATIENCE_SECONDS = 30.0

app = App(
    name="steinscope",
    help="""Tell whether an unnormalised density fits data, by learning the Stein discrepancy.

    To start with:

        steinscope demo

        steinscope test points.npy --score scores.npy --report report.html

    Examples of each command: steinscope COMMAND --help
    """,
    version=__version__,
    default_parameter=Parameter(negative=()),
    suppress_keyboard_interrupt=False,
)
app.command(test)
app.command(compare)
app.command(train)
app.command(sample)


@app.command
def demo(*, out: Path = Path("results/demo"), points: int = 6000, steps: int = 1500) -> None:
    """Train an energy-based model, rank it among others, test each, and write a report; about a minute.

    Examples:

        steinscope demo

        steinscope demo --steps 500 --out results/short

    Parameters
    ----------
    out
        The directory for the report, the figure, and the arrays to go on with.
    points
        How many points; a third of them are held out to rank and test the models.
    steps
        How many steps to train for.
    """
    check_directory(out, "out")
    from steinscope.demo import run_demo

    for line in run_demo(out, points=points, steps=steps):
        print(line, flush=True)


@app.command
def reproduce(
    name: str | None = None,
    /,
    *,
    scale: Literal["smoke", "quick", "paper"] = "quick",
    out: Path | None = None,
    set_: Annotated[tuple[str, ...], Parameter(show_default=False)] = (),
    jobs: int | None = None,
    list_: Flag = False,
) -> None:
    """Run an experiment of the paper. A run that was stopped goes on where it was.

    Examples:

        steinscope reproduce --list

        steinscope reproduce gaussian --scale quick

        steinscope reproduce gof --scale paper --set 'shapes=[[50,40]]' --out results/gof-50-40

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
    list_
        List the experiments.
    """
    from steinscope.experiments.runner import EXPERIMENTS
    from steinscope.experiments.runner import reproduce as run

    if list_:
        width = max(map(len, EXPERIMENTS))
        print("\n".join(f"{key:<{width}}  {text}" for key, text in EXPERIMENTS.items()))
        return
    if name is None:
        raise InputError(f"name: expected one of {', '.join(EXPERIMENTS)}, got none")
    check_directory(out, "out")
    try:
        lines = run(name, scale, out, options=_read_settings(set_), jobs=jobs)
    except InputError as error:
        # What the library calls options is --set here.
        raise InputError(re.sub("^options:", "--set:", str(error))) from None
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
            raise InputError(f"--set: expected KEY=VALUE with VALUE in JSON, such as dims=[50], got {assignment!r}")
    return options


@app.command
def data(name: Literal["mnist", "fashion-mnist"], /, *, out: Path | None = None, source: str | None = None) -> None:
    """Download a data set, checked against its checksums. A download that was stopped goes on where it was.

    Examples:

        steinscope data mnist

        steinscope data fashion-mnist --out /data

    Parameters
    ----------
    name
        The data set.
    out
        Put it into a subdirectory of this directory; by default the user's cache. STEINSCOPE_DATA names the directory
        that experiments look in first.
    source
        The address of the directory with its files; by default the usual public copy.
    """
    check_directory(out, "out")
    from steinscope.data.download import download

    print(download(name, out, source=source))


def main(arguments: list[str] | None = None) -> None:
    """Run the command. Bad input is one line on the standard error and exit status 2.

    Arguments:
        arguments: What follows the name of the command; by default what the process was started with.
    """
    tokens = sys.argv[1:] if arguments is None else arguments
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _show_warning
            sys.exit(app(tokens, print_error=False, exit_on_error=False, result_action="return_value") or 0)
    except UnusedCliTokensError as error:
        _fail(f"unexpected {' '.join(error.unused_tokens or ())}; see --help", 2)
    except (CycloptsError, InputError) as error:
        _fail(str(error), 2)
    except (NonFiniteError, DownloadError) as error:
        _fail(str(error), 1)
    except BrokenPipeError:
        # The reader, such as head, has seen enough. Nothing more can be written, not even at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)
    except OSError as error:
        # A full disk, for example.
        where = f"{error.filename}: " if error.filename else ""
        _fail(f"{where}{error.strerror or error}", 1)
    except KeyboardInterrupt:
        _fail("stopped", 130)


def _fail(message: str, status: int) -> NoReturn:
    """Say in one line what is wrong, once even if torchrun started several processes.

    They all meet the same error. The first process says it, and torchrun then ends the others. One that is still there
    after a while has met an error of its own.
    """
    if not _is_first_process():
        time.sleep(_PATIENCE_SECONDS)
    print(f"steinscope: {message}", file=sys.stderr)
    sys.exit(status)


def _show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    if _is_first_process():
        print(f"steinscope: warning: {' '.join(str(message).split())}", file=sys.stderr)


def _is_first_process() -> bool:
    """As `steinscope.distributed` would say, which imports torch; this must be known without it."""
    return "TORCHELASTIC_RUN_ID" not in os.environ or os.environ.get("RANK", "0") == "0"
