import re
import subprocess
import sys
from typing import get_args

import numpy as np
import pytest

from steinscope.cli import app, main

from helpers import assert_one_line, run_command

COMMANDS = ["test", "check", "monitor", "compare", "train", "sample", "demo", "reproduce", "data", "completion"]


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


def whole_numbers(name):
    """The options of a command that take a whole number."""
    arguments = app[name].assemble_argument_collection()
    found = []
    for argument in arguments:
        kinds = get_args(argument.hint) or (argument.hint,)
        if int in kinds and argument.names[0].startswith("-"):
            found.append(argument.names[0])
    return found


@pytest.mark.parametrize("name, option", [(name, option) for name in COMMANDS for option in whole_numbers(name)])
def test_a_count_is_a_whole_number(command, tmp_path, monkeypatch, name, option):
    monkeypatch.chdir(tmp_path)
    first = {"demo": [], "sample": ["run", "--out", "a.npy"]}.get(name, ["x.npy"])
    for value in ("2.5", "2.0", "1e3", "two", "9" * 5000):
        done = command(name, *first, option, value)
        assert done.code == 2 and len(done.err.splitlines()) == 1
        assert f"Invalid value for {option}: expected a whole number, got {value}" in done.err
    assert not list(tmp_path.iterdir())


def test_there_are_counts():
    assert {"--blocks", "--repeats", "--seed"} == set(whole_numbers("test"))
    assert {"--steps", "--width", "--depth", "--batch-size"} < set(whole_numbers("train"))


def test_names_with_line_breaks_are_one_line(command, tmp_path):
    done = command("test", tmp_path / "a\nb\x1b[31m.npy", "--score", "x.npy")
    assert done.code == 2 and len(done.err.splitlines()) == 1 and "\x1b" not in done.err
    assert r"a\nb\x1b[31m.npy" in done.err


MODEL = """
class Model:
    calls = 0

    def score(self, x):
        self.calls += 1
        if self.calls > 1:
            raise KeyError("first line\\nsecond")
        return -x


model = Model()
"""


def test_a_model_that_fails_later_is_one_line(command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save("x.npy", np.random.default_rng(0).standard_normal((100, 2)))
    (tmp_path / "late_model.py").write_text(MODEL)
    done = command("test", "x.npy", "--model", "late_model:model")
    assert done.code in (1, 2) and done.out == "" and len(done.err.splitlines()) == 1
    assert "KeyError" in done.err and "first line" in done.err


def test_a_fault_of_the_program_is_one_line_and_can_be_looked_into(command, monkeypatch):
    def fail(*_, **__):
        raise RuntimeError("first line\nsecond")

    monkeypatch.setattr("steinscope.experiments.runner.reproduce", fail)
    done = command("reproduce", "gaussian")
    assert done.code == 1
    assert done.err == "steinscope: RuntimeError: first line; set STEINSCOPE_TRACEBACK=1 to see where\n"
    monkeypatch.setenv("STEINSCOPE_TRACEBACK", "1")
    with pytest.raises(RuntimeError, match="second"):
        main(["reproduce", "gaussian"])


@pytest.mark.parametrize(
    "arguments",
    [["test", "x.npy", "--score", "x.npy"], ["compare", "x.npy", "--score", "x.npy"], ["reproduce", "null"]],
)
def test_what_torchrun_cannot_share_is_refused_in_one_line(command, monkeypatch, arguments):
    for name, value in {"TORCHELASTIC_RUN_ID": "1", "WORLD_SIZE": "2", "RANK": "0"}.items():
        monkeypatch.setenv(name, value)
    assert_one_line(command(*arguments), "torchrun: only steinscope train shares its work .* start .* without it")
