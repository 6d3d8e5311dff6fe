"""The errors that the library raises on purpose."""

from __future__ import annotations

__all__ = ["DownloadError", "InputError", "NonFiniteError", "first_line", "one_line"]

# Some errors hold a whole file in one line.
_LONGEST_LINE = 200


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


def first_line(error: BaseException) -> str:
    """What an error says in its first line, after its type. A ValueError speaks for itself.

    Example:
        >>> first_line(KeyError("weights")), first_line(ValueError("outside of the support\\nof the model"))
        ("KeyError: 'weights'", 'outside of the support')
    """
    said = str(error).strip().splitlines()
    if not said:
        return type(error).__name__
    first = said[0].rstrip()
    text = first if len(first) <= _LONGEST_LINE else f"{first[: _LONGEST_LINE - 1]}…"
    # torch.distributions raise ValueError where a point is outside of the support; zlib and csv call theirs just error.
    speaks_for_itself = isinstance(error, ValueError) or type(error).__name__.lower() == "error"
    return text if speaks_for_itself else f"{type(error).__name__}: {text}"
