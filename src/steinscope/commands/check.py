"""`steinscope check`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from steinscope.commands.inputs import SeedOption, is_posterior, load_draws
from steinscope.commands.options import Flag
from steinscope.commands.outputs import check_output, json_text, write_output
from steinscope.errors import InputError
from steinscope.registries import CRITICS

__all__ = ["check"]

_CRITICS = (
    f"What looks for misfit. One of {CRITICS.listed()}; repeat it for several. "
    "By default all that apply; 'closed form' for those that need no training."
)


def check(
    x: str,
    /,
    *,
    model: str | None = None,
    critics: Annotated[list[str] | None, Parameter(help=_CRITICS)] = None,
    alpha: float = 0.05,
    seed: SeedOption = 0,
    json: Flag = False,
    report: Path | None = None,
    fail_on_misfit: Flag = False,
    quiet: Flag = False,
) -> int:
    """Judge draws of a posterior by the Stein test, r̂, effective sample sizes, divergences and modes, in one verdict.

    The verdict is misfit, nothing found or cannot tell, with the reasons. The exit status is 0 whatever it is, unless
    --fail-on-misfit is given, and 2 for input that cannot be used.

    Examples:

        steinscope check posterior.nc --model mymodels:eight_schools

        steinscope check posterior.nc --model mymodels:eight_schools --report report.html

        steinscope check posterior.nc --model mymodels:eight_schools --json --fail-on-misfit

    Parameters
    ----------
    x
        A .nc file with a posterior that ArviZ has saved.
    model
        The model as package.module:object, which may be in the current directory: one of PyMC, NumPyro or BridgeStan,
        or an object with score(x) or log_prob(x). The code of a module is run: name only one that you trust.
    alpha
        The level of the test.
    seed
        The source of all that is random.
    json
        Print JSON and nothing else.
    report
        Write a report to this .html file.
    fail_on_misfit
        Exit with status 1 if the verdict is misfit.
    quiet
        Print nothing but errors, and JSON if it is asked for.
    """
    check_output(report, "report", ".html")
    if not is_posterior(x):
        raise InputError("x", f"expected a .nc file with a posterior, got {x}; steinscope test takes points")
    draws = load_draws(x, model)
    from steinscope.bayes import check_posterior

    checked = check_posterior(draws, alpha=alpha, critics=critics or "auto", seed=seed)
    if report is not None:
        from steinscope.report import report_check

        write_output(report, report_check(checked, data=x, model=model or ""), "report")
    if json:
        print(json_text(checked.to_dict()))
    elif not quiet:
        print(checked)
        if report is not None:
            print(f"report: {report}")
    return int(fail_on_misfit and checked.verdict == "misfit")
