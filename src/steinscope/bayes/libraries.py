"""Libraries that are not needed by everybody, imported when they are."""

from __future__ import annotations

import importlib
from typing import Any

from steinscope.errors import InputError

__all__ = ["load_library"]


def load_library(name: str, extra: str, argument: str = "data") -> Any:
    """A module, or an `InputError` that says how to install it.

    Arguments:
        name: The module.
        extra: The extra of steinscope that installs it.
        argument: What the user gave that needs it.
    """
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise InputError(
            argument,
            f"this needs {name.partition('.')[0]}, which cannot be imported ({error}): "
            f"pip install 'steinscope[{extra}]'",
        ) from error
