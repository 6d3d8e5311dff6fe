import re
import subprocess
import sys

import pytest

from steinscope.cli import app

from helpers import run_command

COMMANDS = ["test", "compare", "train", "sample", "demo", "reproduce", "data"]


def test_every_command_is_tested():
    assert {name for name in app if not name.startswith("-")} == set(COMMANDS)


def test_help_names_the_commands(command):
    output = command("--help").out
    assert all(re.search(rf"^│ {name} +[A-Z]", output, re.MULTILINE) for name in COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_help_has_examples(command, name):
    output = command(name, "--help").out
    assert "Examples" in output and output.count(f"steinscope {name} ") >= 3
    assert "default: False" not in output and "default: ()" not in output


@pytest.mark.parametrize("arguments", [["--help"], ["test", "--help"], ["train", "--help"], ["--version"]])
def test_help_does_not_import_torch(arguments):
    code = (
        "import sys\nfrom steinscope.cli import main\n"
        f"try:\n    main({arguments!r})\nexcept SystemExit:\n    sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], stdout=subprocess.DEVNULL).returncode == 0


def test_a_wrong_command_names_the_right_ones(command):
    done = command("tset", "x.npy")
    assert done.code == 2 and done.out == "" and "steinscope: Unknown command" in done.err and "test" in done.err
    assert len(done.err.splitlines()) == 1


def test_bad_input_is_one_line(tmp_path):
    done = run_command("reproduce", "nothing", cwd=tmp_path)
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.splitlines() == [done.stderr.strip()]
    assert "steinscope: name: expected one of gaussian" in done.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("arguments", ["demo", "reproduce gaussian", "data mnist", "train moons"])
def test_a_file_is_no_directory(command, tmp_path, arguments):
    """It is said before any work."""
    (tmp_path / "file").touch()
    done = command(*arguments.split(), "--out", tmp_path / "file/new")
    assert done.code == 2 and done.out == ""
    assert done.err == f"steinscope: out: {tmp_path / 'file'} is a file, expected a directory\n"
