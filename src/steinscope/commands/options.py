"""Settings as options of a command: one option for each field, with the help and default of the settings."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields, make_dataclass
from types import NoneType
from typing import Annotated, Any, get_args, get_type_hints

from cyclopts import Parameter, Token
from docstring_parser import parse

__all__ = ["Count", "Flag", "given_options", "optional"]


def _whole(_: Any, tokens: Sequence[Token]) -> int:
    """A whole number as it was typed. By itself cyclopts takes 2.5 for 2."""
    if not re.fullmatch(r"[+-]?[0-9]{1,4000}", tokens[0].value):
        raise ValueError(f"expected a whole number, got {tokens[0].value}")
    return int(tokens[0].value)


Flag = Annotated[bool, Parameter(show_default=False)]
Count = Annotated[int, Parameter(converter=_whole)]


def optional(
    settings: type,
    *,
    leave_out: Sequence[str] = (),
    kinds: Mapping[str, Any] | None = None,
    texts: Mapping[str, str] | None = None,
) -> Any:
    """A dataclass with the fields of `settings`, each of which may be None: it was not given.

    Arguments:
        settings: A dataclass whose docstring says what each field is.
        leave_out: Fields that the command takes in another way.
        kinds: Types of fields whose own cannot be typed on a command line.
        texts: Help for fields that the command line says in another way.
    """
    described = {
        item.arg_name: item.description for kind in settings.__mro__ for item in parse(kind.__doc__ or "").params
    }
    described |= texts or {}
    kinds = get_type_hints(settings) | dict(kinds or {})
    options = []
    for field in fields(settings):
        if field.name not in leave_out:
            text = " ".join((described[field.name] or "").replace("`", "").split())
            parts = [part for part in get_args(kinds[field.name]) or [kinds[field.name]] if part is not NoneType]
            shown = _default(field.name, field.default, is_switch=parts == [bool])
            converter = _whole if parts == [int] else None
            parameter = Parameter(name=_option(field.name), help=text, converter=converter, **shown)
            options.append((field.name, Annotated[kinds[field.name] | None, parameter], None))
    made = make_dataclass(f"{settings.__name__}Options", options, frozen=True)
    made.__module__ = __name__  # of a class in `types`, where Python puts it, cyclopts makes one option, not many
    return made


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _default(name: str, default: Any, *, is_switch: bool) -> dict[str, Any]:
    """How the default is shown. What is on by default, or depends, can be switched off."""
    negative = f"--no-{name.replace('_', '-')}"
    if default is True:
        return {"show_default": lambda _: "on", "negative": negative}
    if default is None and is_switch:
        return {"show_default": False, "negative": negative}
    if default is MISSING or default is None or default is False:
        return {"show_default": False}
    shown = " ".join(map(str, default)) if isinstance(default, tuple) else str(default)
    return {"show_default": lambda _: shown}


def given_options(options: Any) -> dict[str, Any]:
    """The options that were given, by name."""
    return {field.name: value for field in fields(options) if (value := getattr(options, field.name)) is not None}
