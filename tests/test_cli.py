import os
import subprocess
import sys

import pytest


def run(*arguments, **options):
    command = [sys.executable, "-m", "steinscope", *arguments]
    return subprocess.run(command, capture_output=True, text=True, **options)


def test_help_names_the_commands():
    output = run("--help").stdout
    assert "demo" in output and "reproduce" in output


def test_help_does_not_import_torch():
    code = "import sys, steinscope.cli; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_the_demo_prints_a_table_and_draws_a_figure(tmp_path):
    done = run("demo", "--out", str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert "true density" in done.stdout and done.stderr == ""
    assert (tmp_path / "demo.png").stat().st_size > 20_000


def test_bad_input_is_one_line(tmp_path):
    done = run("reproduce", "nothing", cwd=tmp_path)
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.splitlines() == [done.stderr.strip()]
    assert "steinscope: name: expected one of gaussian" in done.stderr
    assert not list(tmp_path.iterdir())


def test_experiments_are_listed():
    assert run("reproduce", "--list").stdout.startswith("gaussian ")


@pytest.mark.parametrize("setting", ["repetitions", "repetitions=two", "=2=3"])
def test_settings_are_json(setting, tmp_path):
    done = run("reproduce", "gaussian", "--set", setting, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("steinscope: --set: expected KEY=VALUE with VALUE in JSON")
    assert not list(tmp_path.iterdir())


def test_a_download_that_fails_is_one_line(tmp_path):
    done = run("data", "mnist", "--out", str(tmp_path), "--source", "http://127.0.0.1:1/")
    assert done.returncode == 1 and done.stdout == ""
    assert "steinscope: http://127.0.0.1:1/train-images-idx3-ubyte.gz: gave up after 4 tries" in done.stderr


def test_missing_data_says_how_to_get_them(tmp_path):
    environment = {**os.environ, "STEINSCOPE_DATA": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path)}
    done = run("reproduce", "flow-eval", "--out", str(tmp_path / "out"), env=environment)
    assert done.returncode == 2 and "steinscope data mnist" in done.stderr
