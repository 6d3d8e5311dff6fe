"""Settings as options of a command: one option for each field, with the help and default of the settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields, make_dataclass
from typing import Annotated, Any, get_type_hints

from cyclopts import Parameter
from docstring_parser import parse

__all__ = ["given_options", "optional"]


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
            parameter = Parameter(name=_option(field.name), help=text, **_default(field.name, field.default))
            options.append((field.name, Annotated[kinds[field.name] | None, parameter], None))
    made = make_dataclass(f"{settings.__name__}Options", options, frozen=True)
    made.__module__ = __name__  # of a class in `types`, where Python puts it, cyclopts makes one option, not many
    return made


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _default(name: str, default: Any) -> dict[str, Any]:
    """How the default is shown. What is on by default can be switched off."""
    if default is True:
        return {"show_default": lambda _: "on", "negative": f"--no-{name.replace('_', '-')}"}
    if default is MISSING or default is None or default is False:
        return {"show_default": False}
    shown = " ".join(map(str, default)) if isinstance(default, tuple) else str(default)
    return {"show_default": lambda _: shown}


def given_options(options: Any) -> dict[str, Any]:
    """The options that were given, by name."""
    return {field.name: value for field in fields(options) if (value := getattr(options, field.name)) is not None}
