"""The errors that the library raises on purpose."""

from __future__ import annotations

__all__ = ["DownloadError", "InputError", "NonFiniteError"]


class InputError(ValueError):
    """Input that cannot be used.

    The message is one line. It names the argument, what came and what is expected.
    """


class NonFiniteError(RuntimeError):
    """A run whose numbers turned to NaN or infinity.

    The message names the step and the quantity. The library never replaces such a value by another number.
    """


class DownloadError(RuntimeError):
    """A download that could not be finished. What has arrived is kept, and the next call goes on from there."""
