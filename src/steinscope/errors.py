"""The errors that the library raises on purpose."""

from __future__ import annotations

__all__ = ["DownloadError", "InputError", "NonFiniteError", "one_line"]


def one_line(text: str) -> str:
    """A text with its line breaks and other control characters written out, as names of files may hold them.

    Example:
        >>> print(one_line("two\\nlines"))
        two\\nlines
    """
    return "".join(mark if mark.isprintable() else ascii(mark)[1:-1] for mark in text)


class InputError(ValueError):
    """Input that cannot be used. Its message is one line.

    Arguments:
        argument: What the user calls it.
        problem: What came and what is expected.

    Example:
        >>> print(InputError("alpha", "expected a number between 0 and 1, got 2"))
        alpha: expected a number between 0 and 1, got 2
    """

    def __init__(self, argument: str, problem: str) -> None:
        super().__init__(argument, problem)
        self.argument, self.problem = argument, problem

    def __str__(self) -> str:
        return one_line(f"{self.argument}: {self.problem}")

    def renamed(self, argument: str) -> InputError:
        """The same problem of what the user calls by another name."""
        return InputError(argument, self.problem)


class NonFiniteError(RuntimeError):
    """A run whose numbers turned to NaN or infinity.

    The message names the step and the quantity. The library never replaces such a value by another number.
    """


class DownloadError(RuntimeError):
    """A download that could not be finished. What has arrived is kept, and the next call resumes from there."""
