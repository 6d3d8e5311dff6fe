import os
import subprocess
import sys

import pytest


def run(*arguments, **options):
    command = [sys.executable, "-m", "steinscope", *arguments]
    return subprocess.run(command, capture_output=True, text=True, **options)


def test_help_names_the_commands(command):
    output = command("--help").out
    assert all(name in output for name in ("test", "compare", "train", "sample", "demo", "reproduce", "data"))


@pytest.mark.parametrize("name", ["test", "compare", "train", "sample", "demo", "reproduce", "data"])
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


def test_the_demo_ranks_and_tests_models_and_writes_what_it_names(command, tmp_path):
    done = command("demo", "--out", tmp_path, "--points", 1500, "--steps", 40)
    assert done.code == 0 and done.err == ""
    table = [line for line in done.out.splitlines() if line[:1] in ("1", "2", "3", "4") and " ± " in line]
    models = ("one Gaussian", "two Gaussians", "half-trained EBM", "trained EBM")
    assert len(table) == 4 and all(any(name in line for line in table) for name in models)
    assert all("rejected, p = " in line or "nothing found, p = " in line for line in table)
    page = (tmp_path / "report.html").read_text()
    assert all(page.count(name) >= 3 for name in models) and page.count("data:image/png") == 4
    assert (tmp_path / "demo.png").stat().st_size > 20_000
    (suggested,) = [line.split()[1:] for line in done.out.splitlines() if "steinscope test" in line]
    assert "the model is rejected" in command(*suggested).out


@pytest.mark.parametrize("option", ["--points", "--steps"])
def test_a_demo_that_is_too_small_is_refused(command, tmp_path, option):
    done = command("demo", "--out", tmp_path, option, 5)
    assert (
        done.code == 2 and f"steinscope: {option[2:]}: expected at least" in done.err and not list(tmp_path.iterdir())
    )


def test_bad_input_is_one_line(tmp_path):
    done = run("reproduce", "nothing", cwd=tmp_path)
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


def test_experiments_are_listed():
    assert run("reproduce", "--list").stdout.startswith("gaussian ")


@pytest.mark.parametrize("setting", ["repetitions", "repetitions=two", "=2=3"])
def test_settings_are_json(setting, tmp_path):
    done = run("reproduce", "gaussian", "--set", setting, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("steinscope: --set: expected KEY=VALUE with VALUE in JSON")
    assert not list(tmp_path.iterdir())


def test_an_unknown_setting_is_named_as_it_was_typed(command, tmp_path):
    done = command("reproduce", "gaussian", "--set", "deep=1", "--out", tmp_path / "new")
    assert done.code == 2 and done.err.startswith("steinscope: --set: expected some of dim, ")
    assert not list(tmp_path.iterdir())


def test_a_download_that_fails_is_one_line(tmp_path):
    done = run("data", "mnist", "--out", str(tmp_path), "--source", "http://127.0.0.1:1/")
    assert done.returncode == 1 and done.stdout == ""
    assert "steinscope: http://127.0.0.1:1/train-images-idx3-ubyte.gz: gave up after 4 tries" in done.stderr
    assert not list(tmp_path.iterdir())


def test_a_source_must_be_an_address(command, tmp_path):
    done = command("data", "mnist", "--out", tmp_path, "--source", "here")
    assert done.code == 2 and "steinscope: source: expected an address such as https" in done.err


def test_missing_data_says_how_to_get_them(tmp_path):
    environment = {**os.environ, "STEINSCOPE_DATA": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path)}
    done = run("reproduce", "flow-eval", "--out", str(tmp_path / "out"), env=environment)
    assert done.returncode == 2 and "steinscope data mnist" in done.stderr
