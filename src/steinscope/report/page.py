"""The page that all reports share: a template that escapes whatever it is given, and tables that can be sorted."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, NamedTuple

from steinscope.report.charts import number

__all__ = ["Cell", "Table", "render"]


class Cell(NamedTuple):
    """A cell of a table: what is shown, and the number to sort by, if it is one."""

    text: str
    value: float | None = None

    @classmethod
    def of(cls, value: float | None, digits: int = 4) -> Cell:
        """A number."""
        return cls(number(value, digits), value)


@dataclass(frozen=True)
class Table:
    """A table that can be sorted.

    Arguments:
        caption: What it shows.
        columns: The names of the columns.
        rows: The cells, row by row. Plain strings are text.
        texts: Which columns are text, and stand at the left.
    """

    caption: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell | str]]
    texts: frozenset[int] = field(default=frozenset({0}))


@cache
def _environment() -> Any:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("steinscope.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["number"] = number
    return environment


def render(template: str, **values: Any) -> str:
    """A report from a template. It loads nothing from elsewhere, and no script but its own can run."""
    from steinscope import __version__

    environment = _environment()
    script = environment.loader.get_source(environment, "sort.js")[0]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return environment.get_template(template).render(
        **values, version=__version__, script=script, script_digest=digest, as_cell=_as_cell
    )


def _as_cell(cell: Cell | str) -> Cell:
    return cell if isinstance(cell, Cell) else Cell(cell)
