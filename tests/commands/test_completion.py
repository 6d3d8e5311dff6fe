"""`steinscope completion`."""

import subprocess

import pytest

from helpers import assert_one_line


def completed(script, line, here):
    """What bash offers at the end of a line, and whether it goes on with files where that is nothing."""
    words = line.split(" ")
    program = f"""
        source ./{script}
        COMP_WORDS=({" ".join(f"'{word}'" for word in words)}); COMP_CWORD={len(words) - 1}
        _steinscope
        printf '%s\\n' "${{COMPREPLY[@]}}"
        complete -p steinscope >&2
    """
    done = subprocess.run(["bash", "-c", program], cwd=here, capture_output=True, text=True, check=True)
    return done.stdout.split(), done.stderr


def test_bash_completes_commands_options_choices_and_files(command, here):
    (here / "script").write_text(command("completion", "bash").out)
    offered, registered = completed("script", "steinscope te", here)
    assert offered == ["test"] and "-o default" in registered
    offered, _ = completed("script", "steinscope test --rep", here)
    assert offered == ["--repeats", "--report"]
    offered, _ = completed("script", "steinscope test --scheme ", here)
    assert offered == ["prequential", "split"]
    # Nothing is offered for points and scores, so that bash goes on with files.
    assert completed("script", "steinscope test po", here)[0] == []
    assert completed("script", "steinscope test points.npy --score sc", here)[0] == []


def test_zsh_completes_files_for_points_and_scores(command):
    script = command("completion", "zsh").out
    assert script.startswith("#compdef steinscope\n")
    lines = [line for line in script.splitlines() if line.strip().startswith(("'1:The points", "'*--score["))]
    # Of test and compare each, and the points of others.
    assert len(lines) >= 4 and all(line.endswith(":_files' \\") for line in lines)
    assert "(prequential split)" in script and script.count(":_files:_files") == 0


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_every_command_is_completed(command, shell):
    script = command("completion", shell).out
    for name in ("demo", "test", "compare", "check", "monitor", "train", "sample", "reproduce", "data", "completion"):
        assert name in script


def test_another_shell_is_refused_in_one_line(command):
    assert_one_line(command("completion", "cmd"), "bash.*zsh")
