"""`steinscope completion`."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from cyclopts import App

__all__ = ["completion_script", "make_completion"]


def make_completion(app: App) -> Callable[[Literal["bash", "zsh"]], None]:
    """The command `completion` of an app, which must know all other commands."""

    def completion(shell: Literal["bash", "zsh"], /) -> None:
        """Print a script that completes commands, options, choices and files when the tab key is pressed.

        Examples, one for each shell:

            steinscope completion bash > ~/.local/share/bash-completion/completions/steinscope

            steinscope completion zsh > ~/.zfunc/_steinscope

        Parameters
        ----------
        shell
            The shell that the script is for. It is read when the next shell starts. zsh looks in the directories of
            fpath: for the example .zshrc has fpath+=~/.zfunc before compinit.
        """
        print(completion_script(app, shell), end="")

    return completion


def completion_script(app: App, shell: Literal["bash", "zsh"]) -> str:
    """The script of cyclopts, which by itself completes no files where an argument may be something else as well."""
    script = app.generate_completion(shell=shell).rstrip() + "\n"
    if shell == "bash":
        return re.sub(r"^complete -F ", "complete -o bashdefault -o default -F ", script, flags=re.MULTILINE)
    # '1:The points…' and '*--score[…]:score' name no action.
    return re.sub(
        r"^( +'(?:\d+:[^:]|\*--\w[^\n]*\]:)(?:[^:\n]|\\:)*)'( \\)?$", r"\1:_files'\2", script, flags=re.MULTILINE
    )
