"""`steinscope reproduce`."""

import os
import re

import pytest

from steinscope.experiments.runner import EXPERIMENTS

from helpers import assert_one_line, run_command


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


@pytest.mark.parametrize("name", ["gof", "rbm-eval"])
@pytest.mark.parametrize("value", ["[[1]]", "[[1, 2, 3]]", "[[6, 4], [1]]"])
def test_lists_of_a_list_are_as_long_as_their_defaults(command, tmp_path, name, value):
    done = command("reproduce", name, "--scale", "smoke", "--set", f"shapes={value}", "--out", tmp_path / "new")
    line = re.escape(f"by default, got {value}, expected lists of 2 in it\n")
    assert done.code == 2 and re.fullmatch(rf"steinscope: --set: shapes is .* {line}", done.err), done.err
    assert not list(tmp_path.iterdir())


def test_missing_data_says_how_to_get_them(tmp_path):
    environment = {**os.environ, "STEINSCOPE_DATA": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path)}
    done = run_command("reproduce", "flow-eval", "--out", str(tmp_path / "out"), env=environment)
    assert done.returncode == 2 and "steinscope data mnist" in done.stderr


def test_a_figure_is_drawn_again_from_its_table(here, command):
    (here / "rates.csv").write_text(
        "dim,hidden,sigma,method,tests,rate,low,high,seconds\n"
        "50,40,0.01,learned,200,0.47,0.3993,0.5417,1.1\n50,40,0.01,KSD,200,0.355,0.2888,0.4256,\n"
    )
    assert command("reproduce", "gof", "--redraw", "rates.csv").out == "rates.png\n"
    assert (here / "rates.png").read_bytes().startswith(b"\x89PNG") and len(list(here.iterdir())) == 2
    assert_one_line(command("reproduce", "gof", "--redraw", "no.csv"), "--redraw: no.csv cannot be read")
    assert_one_line(
        command("reproduce", "toy", "--redraw", "rates.csv"), "--redraw: expected a table of one of gaussian"
    )
