"""`steinscope reproduce`."""

import os
import re

import pytest

from steinscope.experiments.runner import EXPERIMENTS

from helpers import run_command


def test_experiments_are_listed(command):
    lines = command("reproduce", "--list").out.splitlines()
    assert [line.split()[0] for line in lines] == list(EXPERIMENTS)


@pytest.mark.parametrize("setting", ["repetitions", "repetitions=two", "=2=3"])
def test_settings_are_json(setting, tmp_path):
    done = run_command("reproduce", "gaussian", "--set", setting, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("steinscope: --set: expected KEY=VALUE with VALUE in JSON")
    assert not list(tmp_path.iterdir())


def test_an_unknown_setting_is_named_as_it_was_typed(command, tmp_path):
    done = command("reproduce", "gaussian", "--set", "deep=1", "--out", tmp_path / "new")
    assert done.code == 2 and done.err.startswith("steinscope: --set: expected some of dim, ")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "name, setting",
    [
        ("gaussian", "dim=-3"),
        ("gaussian", "dim=0"),
        ("gaussian", "dim=2.5"),
        ("gaussian", "dim=true"),
        ("gaussian", "dim=null"),
        ("gaussian", "dim=[1]"),
        ("gof", "sigmas=[-0.5]"),
        ("gof", "sigmas=[]"),
        ("gof", "shapes=[[50,-40]]"),
        ("gof", 'methods=["KSD", 3]'),
        ("selection", "l2=NaN"),
        ("ica", 'methods={"XX": {"lr": [0.1]}}'),
        ("ica", 'methods={"ML": {"lr": [-0.1]}}'),
    ],
)
def test_settings_are_of_the_kind_of_their_defaults(command, tmp_path, name, setting):
    done = command("reproduce", name, "--scale", "smoke", "--set", setting, "--out", tmp_path / "new")
    key = setting.partition("=")[0]
    assert done.code == 2 and re.match(rf"steinscope: --set: {key} is .* by default, got .*\n$", done.err), done.err
    assert not list(tmp_path.iterdir())


def test_missing_data_says_how_to_get_them(tmp_path):
    environment = {**os.environ, "STEINSCOPE_DATA": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path)}
    done = run_command("reproduce", "flow-eval", "--out", str(tmp_path / "out"), env=environment)
    assert done.returncode == 2 and "steinscope data mnist" in done.stderr
