import io
import json
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from steinscope.commands.inputs import STANDARD_INPUT, load_model, named, read_points, read_scores
from steinscope.data.tables import Table
from steinscope.errors import InputError

from helpers import assert_one_line


def test_names_of_models(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "lr=1.npy").touch()
    (tmp_path / "run.1").mkdir()
    assert named("score", ["lr=1.npy"]) == {"lr=1": "lr=1.npy"}
    assert named("model", ["run.1", "a.b:c.d", "x=a:b"]) == {"run.1": "run.1", "c.d": "a.b:c.d", "x": "a:b"}
    with pytest.raises(InputError, match="model: expected NAME=SOURCE or SOURCE, got 'x='"):
        named("model", ["x="])


def typed_in(monkeypatch, content):
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(content)))


def test_points_come_from_the_standard_input(arrays, here, command, monkeypatch):
    options = ["--score", "scores.npy", "--critics", "linear", "--json"]
    expected = json.loads(command("test", "x.npy", *options).out)
    rows = "".join(",".join(map(repr, row)) + "\n" for row in arrays.tolist())
    np.savez(here / "x.npz", arrays)
    for content in ((here / "x.npy").read_bytes(), (here / "x.npz").read_bytes(), f"a,b,c\n{rows}".encode()):
        typed_in(monkeypatch, content)
        assert json.loads(command("test", "-", *options).out)["pvalue"] == pytest.approx(expected["pvalue"], rel=1e-4)
    typed_in(monkeypatch, b"")
    assert_one_line(command("test", "-", "--score", "scores.npy"), "^steinscope: x: the standard input is empty$")


def test_a_memmap_of_the_standard_input_stays_readable(arrays, here, monkeypatch):
    monkeypatch.setattr("steinscope.data.tables._MEMORY_BYTES", 0)
    typed_in(monkeypatch, (here / "x.npy").read_bytes())
    points = read_points(STANDARD_INPUT).array
    assert isinstance(points, np.memmap)
    np.testing.assert_array_equal(points, arrays)


def test_columns_of_scores_are_those_of_the_points(tmp_path):
    x = Table(np.ones((2, 3)), ("a", "b", "c"))
    for names in ("a,b,c", "score a,score b,score c", "1.5,2,3"):
        (tmp_path / "s.csv").write_text(f"{names}\n" + "1,2,3\n" * (1 if names[0] == "1" else 2))
        assert read_scores(str(tmp_path / "s.csv"), x, "score").shape == (2, 3)
    wrong = {
        "a,c,b": "score: column 2 of .*s.csv is 'c', which is column 3 of x; expected 'b': the columns",
        "a,d,c": "score: column 2 of .*s.csv is 'd', which is no column of x; expected 'b': the columns",
    }
    for names, message in wrong.items():
        (tmp_path / "s.csv").write_text(f"{names}\n1,2,3\n4,5,6\n")
        with pytest.raises(InputError, match=message):
            read_scores(str(tmp_path / "s.csv"), x, "score")


def test_columns_of_samples_and_runs_are_those_of_the_points(here, command, monkeypatch):
    rng = np.random.default_rng(0)
    for name, columns in (("x", "a,b"), ("samples", "b,a")):
        np.savetxt(f"{name}.csv", rng.standard_normal((100, 2)), delimiter=",", header=columns, comments="")
    done = command("test", "x.csv", "--method", "mmd", "--samples", "samples.csv")
    assert_one_line(done, "samples: column 1 of samples.csv is 'b', which is column 2 of x; expected 'a'")
    run = SimpleNamespace(shape=(2,), names=("b", "a"), model=None)
    monkeypatch.setattr("steinscope.training.directory.load_run", lambda path, name: run)
    (here / "run").mkdir()
    assert_one_line(command("test", "x.csv", "--model", "run"), "model: column 1 of run is 'b', which is column 2 of x")


def test_scores_come_from_the_standard_input(arrays, here, command, monkeypatch):
    options = ["--critics", "linear", "--json"]
    for arguments in (["test", "x.npy", "--score", "{}"], ["compare", "x.npy", "--score", "a={}", "--folds", "0"]):
        expected = command(*(part.format("scores.npy") for part in arguments), *options).out
        typed_in(monkeypatch, (here / "scores.npy").read_bytes())
        assert command(*(part.format("-") for part in arguments), *options).out == expected
    for arguments in (["test", "-", "--score", "-"], ["compare", "-", "--score", "a=-"]):
        assert_one_line(command(*arguments), "the standard input can be read only once: give all but one as files")


def test_what_the_first_line_holds_can_be_said(here, command):
    rng = np.random.default_rng(0)
    lines = "".join(f"{a!r},{b!r}\n" for a, b in rng.standard_normal((200, 2)).tolist())
    (here / "x.csv").write_text("0,1\n" + lines)
    options = ["test", "x.csv", "--score", "x.csv", "--critics", "linear", "--json"]
    assert_one_line(command(*options), "x: the first line of x.csv, 0,1, can be names of columns or a point")
    assert json.loads(command(*options, "--header").out)["n"] == 200
    assert json.loads(command(*options, "--no-header").out)["n"] == 201


def test_installed_modules_come_before_those_of_the_current_directory(here, monkeypatch):
    (here / "own_model.py").write_text("model = 1")
    (here / "colorsys.py").write_text("model = 1")
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path not in ("", str(here))])
    monkeypatch.delitem(sys.modules, "colorsys", raising=False)
    with pytest.raises(InputError, match="model: colorsys has no 'model'"):
        load_model("colorsys:model", Table(np.ones((3, 2))))
    with pytest.raises(InputError, match=r"model: expected an object with score\(x\)"):
        load_model("own_model:model", Table(np.ones((3, 2))))


def test_the_file_of_a_module_is_told_from_its_name(here):
    x = Table(np.ones((3, 2)))
    for source, expected in (("mine.py:model", "mine:model"), ("mine.py", "mine:OBJECT")):
        with pytest.raises(InputError, match=f"not of its file: {expected}, got '{source}'"):
            load_model(source, x)
    with pytest.raises(InputError, match="not of its file: a file in the current directory, got 'src/mine.py:model'"):
        load_model("src/mine.py:model", x)


def test_the_columns_of_a_file_are_those_that_an_estimator_was_fitted_to(here):
    (here / "fitted_models.py").write_text(
        "class Fitted:\n    feature_names_in_ = ['a', 'b']\n    def fit(self, x): ...\n"
        "    def get_params(self): ...\n    def score_samples(self, x): return -0.5 * (x**2).sum(1)\nmodel = Fitted()\n"
    )
    with pytest.raises(InputError, match="x: column 0 is 'b', and Fitted was fitted with 'a' there"):
        load_model("fitted_models:model", Table(np.ones((3, 2)), ("b", "a")))
