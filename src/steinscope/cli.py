"""The `steinscope` command. torch is imported only by the commands that need it."""

from __future__ import annotations

import os
import sys
import time
import warnings
from typing import Any, NoReturn

from cyclopts import App, CycloptsError, Parameter, UnusedCliTokensError

from steinscope import __version__
from steinscope.commands.check import check
from steinscope.commands.compare import compare
from steinscope.commands.completion import make_completion
from steinscope.commands.data import data
from steinscope.commands.demo import demo
from steinscope.commands.inputs import STANDARD_INPUT
from steinscope.commands.monitor import monitor
from steinscope.commands.reproduce import reproduce
from steinscope.commands.sample import sample
from steinscope.commands.test import test
from steinscope.commands.train import train
from steinscope.errors import DownloadError, InputError, NonFiniteError, first_line, one_line

__all__ = ["app", "main"]

_PATIENCE_SECONDS = 30.0
_TRACEBACK = "STEINSCOPE_TRACEBACK"

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
# In the order in which a new user needs them, and not in that of the alphabet.
for place, command in enumerate((demo, test, compare, check, monitor, train, sample, reproduce, data)):
    app.command(command, sort_key=place)
app.command(make_completion(app), sort_key=place + 1)


def main(arguments: list[str] | None = None) -> None:
    """Run the command. Bad input is one line on the standard error and exit status 2.

    Arguments:
        arguments: What follows the name of the command; by default what the process was started with.
    """
    tokens = sys.argv[1:] if arguments is None else arguments
    tokens = [STANDARD_INPUT if token == "-" else token for token in tokens]
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _show_warning
            sys.exit(app(tokens, print_error=False, exit_on_error=False, result_action="return_value") or 0)
    except UnusedCliTokensError as error:
        _fail(_unexpected(error), 2)
    except CycloptsError as error:
        _fail(" ".join(str(error).split()), 2)
    except InputError as error:
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
    except Exception as error:
        # A model of the user's own can fail in any way, and so can this program.
        if os.environ.get(_TRACEBACK):
            raise
        _fail(f"{first_line(error)}; set {_TRACEBACK}=1 to see where", 1)


def _unexpected(error: UnusedCliTokensError) -> str:
    """What to say about words that no option takes. Mostly they are scores without their option."""
    words = error.unused_tokens or []
    command = " ".join(["steinscope", *(error.command_chain or ())])
    hint = f"; are these scores? Give them as --score {words[0]}" if command.endswith("test") else ""
    return f"unexpected {' '.join(words)}{hint}; see {command} --help"


def _fail(message: str, status: int) -> NoReturn:
    """Say in one line what is wrong, once even if torchrun started several processes.

    They all meet the same error. The first process says it, and torchrun then ends the others. One that is still there
    after a while has met an error of its own.
    """
    if not _is_first_process():
        time.sleep(_PATIENCE_SECONDS)
    print(f"steinscope: {one_line(message.replace(STANDARD_INPUT, '-'))}", file=sys.stderr)
    sys.exit(status)


def _show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    if _is_first_process():
        print(f"steinscope: warning: {one_line(' '.join(str(message).split()))}", file=sys.stderr)


def _is_first_process() -> bool:
    """As `steinscope.training.distributed` would say, which imports torch; this must be known without it."""
    return "TORCHELASTIC_RUN_ID" not in os.environ or os.environ.get("RANK", "0") == "0"
