"""`steinscope test` and `steinscope compare`."""

import csv
import json
import re

import numpy as np
import pytest

from steinscope.commands.inputs import named
from steinscope.errors import InputError


@pytest.fixture
def arrays(tmp_path, monkeypatch):
    """Points of two correlated coordinates in the current directory, with scores and models of them."""
    monkeypatch.chdir(tmp_path)
    x = np.random.default_rng(0).standard_normal((300, 3)).astype(np.float32)
    np.save("good.npy", x)
    x[:, 1] = 0.6 * x[:, 1] + 0.8 * x[:, 2]
    np.save("x.npy", x)
    np.save("scores.npy", -x)
    np.save("wide.npy", -x / 1.5)
    broken = x.copy()
    broken[17, 2] = np.nan
    np.save("broken.npy", broken)
    (tmp_path / "standard_models.py").write_text(
        "import torch\nfrom steinscope.models.gaussian import Gaussian\n"
        "class Group:\n    normal = Gaussian(torch.zeros(3))\n"
        "normal = Group.normal\ndef fn(x):\n    return x\n"
    )
    (tmp_path / "failing_models.py").write_text("raise RuntimeError('first line\\nsecond')")
    (tmp_path / "needing_models.py").write_text("import a_module_that_is_not_there")
    return x


def test_a_test_of_arrays(arrays, command):
    done = command("test", "x.npy", "--score", "scores.npy")
    assert done.code == 0 and done.err == ""
    assert "the model is rejected" in done.out and "x[1] and x[2] are more positively related" in done.out


def test_the_same_by_model_and_by_csv(arrays, command):
    np.savetxt("x.csv", arrays, delimiter=",", header="a,b,c", comments="")
    by_score = json.loads(command("test", "x.npy", "--score", "scores.npy", "--json").out)
    for arguments in (["x.npy", "--model", "standard_models:Group.normal"], ["x.csv", "--score", "scores.npy"]):
        result = json.loads(command("test", *arguments, "--json").out)
        assert result["statistic"] == pytest.approx(by_score["statistic"], rel=1e-3)


def test_the_exit_status_says_whether_the_model_is_rejected_only_if_asked(arrays, command):
    bad, good = ["x.npy", "--score", "scores.npy"], ["good.npy", "--model", "standard_models:normal"]
    assert command("test", *bad, "--quiet").code == 0
    assert command("test", *bad, "--quiet", "--fail-on-reject").code == 1
    assert command("test", *good, "--quiet", "--fail-on-reject").code == 0


def test_json_is_all_that_is_printed(arrays, command):
    done = command("test", "x.npy", "--score", "scores.npy", "--json", "--explain", "--quiet")
    result = json.loads(done.out)
    assert result["rejected"] is True and result["dim"] == 3 and len(result["critics"]) == 4
    explained = result["explanation"]
    assert sum(explained["coordinates"]) == pytest.approx(explained["total"])
    assert command("test", "x.npy", "--score", "scores.npy", "--quiet").out == ""


def test_an_explanation_is_printed(arrays, command):
    out = command("test", "x.npy", "--score", "scores.npy", "--explain").out
    assert "Contributions to the z-score" in out and "95% interval" in out


def test_reports_are_written_as_a_whole(arrays, command, tmp_path):
    done = command("test", "x.npy", "--score", "scores.npy", "--report", "new/test.html")
    assert done.code == 0 and "report: new/test.html" in done.out
    assert "The model is rejected" in (tmp_path / "new/test.html").read_text()
    done = command("compare", "x.npy", "--score", "a=scores.npy", "--folds", 0, "--steps", 5, "--report", "rank.html")
    assert "a is the only model" in (tmp_path / "rank.html").read_text()
    command("test", "x.npy", "--score", "scores.npy", "--method", "ksd", "--report", "ksd.html", "--quiet")
    assert "KSD test" in (tmp_path / "ksd.html").read_text()
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["test.html"]


@pytest.mark.parametrize("method", ["ksd", "linear-ksd", "fssd", "ksdagg"])
def test_kernel_tests(arrays, command, method):
    done = command("test", "x.npy", "--score", "scores.npy", "--method", method)
    assert done.code == 0 and "test" in done.out and "300 points, 3 coordinates" in done.out


def test_mmd_takes_samples(arrays, command):
    done = command("test", "x.npy", "--samples", "good.npy", "--method", "mmd", "--json")
    assert json.loads(done.out)["method"].startswith("MMD test")


def test_schemes_critics_blocks_and_seeds(arrays, command):
    base = ["test", "x.npy", "--score", "scores.npy", "--json"]
    assert "one split 240/30/30" in json.loads(command(*base, "--scheme", "split").out)["method"]
    options = ["--critics", "mean", "--critics", "linear", "--blocks", "5", "--alpha", "0.01"]
    result = json.loads(command(*base, *options).out)
    assert [critic["name"] for critic in result["critics"]] == ["mean", "linear"]
    assert len(result["critics"][0]["block_n"]) == 4 and result["alpha"] == 0.01
    other = json.loads(command(*base, *options, "--seed", "1").out)
    assert other["statistic"] != result["statistic"]


def test_a_single_coordinate_is_one(arrays, command):
    np.save("line.npy", arrays[:, 0])
    np.save("line_scores.npy", -arrays[:, 0])
    done = command("test", "line.npy", "--score", "line_scores.npy", "--critics", "auto")
    assert "300 points, 1 coordinate\n" in done.out and "mean z = " in done.out and "features z = " in done.out


def test_quiet_is_quiet_on_a_terminal(arrays, command, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    options = ["--scheme", "split", "--quiet"]
    done = command("test", "x.npy", "--score", "scores.npy", *options)
    assert done.code == 0 and done.out == done.err == ""


def test_a_ranking(arrays, command):
    done = command(
        "compare", "x.npy", "--score", "scores.npy", "--score", "wide one=wide.npy", "--score", "broken=broken.npy",
        "--model", "standard_models:normal", "--folds", "2", "--steps", "20", "--csv", "new/table.csv",
    )  # fmt: skip
    assert done.code == 0, done.err
    assert "wide one" in done.out and "broken    failed: row 17 holds nan" in done.out and "new/table.csv" in done.out
    with open("new/table.csv") as file:
        rows = list(csv.DictReader(file))
    assert {row["model"] for row in rows} == {"scores", "wide one", "normal", "broken"}
    assert rows[-1]["failure"].startswith("row 17")


def test_a_ranking_as_json(arrays, command):
    sources = ["--score", "a=scores.npy", "--score", "b=wide.npy"]
    done = command("compare", "x.npy", *sources, "--folds", "0", "--steps", "10", "--l2", "2", "--json")
    ranking = json.loads(done.out)
    assert ranking["folds"] is None and ranking["l2"] == 2.0 and len(ranking["models"]) == 2


@pytest.mark.parametrize(
    "arguments, message",
    [
        ("test", 'Command "test" parameter X requires an argument.'),
        ("test x.npy", "score, model: give the model as --score FILE or as --model NAME, got neither"),
        ("test x.npy scores.npy", "unexpected scores.npy; see --help"),
        ("test x.npy --score a.npy --model b:c", "score, model: give the model as .* got both"),
        ("test nothing.npy --score scores.npy", "x: there is no file nothing.npy"),
        ("test broken.npy --score scores.npy", "x: row 17 holds nan; every value must be finite"),
        ("test x.npy --score broken.npy", "score: row 17 holds nan; every value must be finite"),
        ("test x.npy --score short.npy", r"score: short.npy has shape \(299, 3\), expected that of x, \(300, 3\)"),
        ("test x.npy --model standard_models", "model: expected package.module:object or the directory of a run"),
        ("test x.npy --model nowhere:normal", "model: there is no module nowhere here or among the installed ones"),
        ("test x.npy --model standard_models:no", "model: standard_models has no 'no'"),
        ("test x.npy --model standard_models:Gaussian", "model: standard_models:Gaussian is a class, expected an"),
        ("test x.npy --model standard_models:fn", "model: got the function or callable fn; say what it computes"),
        ("test x.npy --model failing_models:a", "model: failing_models cannot be imported: RuntimeError: first line"),
        ("test x.npy --model needing_models:a", "model: needing_models cannot be imported: No module named 'a_mod"),
        ("test x.npy --score scores.npy --alpha 2", "alpha: expected a number between 0 and 1, got 2"),
        ("test x.npy --score scores.npy --alpha 2 --method ksd", "alpha: expected a number between 0 and 1, got 2"),
        ("test x.npy --score scores.npy --alpha five", "Invalid value for --alpha: unable to convert"),
        ("test x.npy --score scores.npy --seed -1", 'Invalid value "-1" for --seed. Must be >= 0.'),
        ("test x.npy --score scores.npy --method deep", "method: expected one of learned, ksd"),
        ("test x.npy --score scores.npy --critics deep", "critics: expected 'auto' or some of 'mean'"),
        ("test x.npy --score scores.npy --method ksd --blocks 3", "blocks: this is an option of --method learned"),
        ("test x.npy --score scores.npy --scheme split --blocks 3", "blocks: this is an option of the prequential"),
        ("test x.npy --score scores.npy --method ksd --explain", "explain: only a learned test has a critic"),
        ("test x.npy --score scores.npy --method mmd", "samples: --method mmd compares with samples of the model"),
        ("test x.npy --samples x.npy", "samples: only --method mmd takes samples, got --method learned"),
        ("test x.npy --score scores.npy --report here", "report: expected a name that ends in .html, got here"),
        ("test x.npy --score scores.npy --report .", "report: . is a directory, expected the name of a .html file"),
        ("test x.npy --score scores.npy --report x.npy/r.html", "report: x.npy is a file, so x.npy/r.html cannot be"),
        ("test x.npy --score scores.npy --repot r.html", "Unknown option: --repot. Did you mean --report"),
        ("compare x.npy", "score, model: give at least one model"),
        ("compare x.npy --score =scores.npy", "score: expected NAME=SOURCE or SOURCE, got '=scores.npy'"),
        ("compare x.npy --score a=x.npy --score a=x.npy", "score: two models are named 'a'"),
        ("compare x.npy --score a=x.npy --model a=b:c", "model: two models are named 'a'"),
        ("compare x.npy --score a=short.npy", r"score a: short.npy has shape \(299, 3\)"),
        ("compare x.npy --model a=nowhere:b", "model a: there is no module nowhere"),
        ("compare x.npy --score scores.npy --csv a.txt", "csv: expected a name that ends in .csv, got a.txt"),
        ("compare x.npy --score broken.npy", "models: none of the 1 could be ranked; broken: row 17 holds nan"),
    ],
)
def test_bad_input_is_one_line(arrays, command, arguments, message):
    np.save("short.npy", -arrays[1:])
    done = command(*arguments.split())
    assert done.code == 2 and done.out == ""
    assert done.err.startswith("steinscope: ") and len(done.err.splitlines()) == 1
    assert re.search(message, done.err), done.err


def test_names_of_models(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "lr=1.npy").touch()
    (tmp_path / "run.1").mkdir()
    assert named("score", ["lr=1.npy"]) == {"lr=1": "lr=1.npy"}
    assert named("model", ["run.1", "a.b:c.d", "x=a:b"]) == {"run.1": "run.1", "c.d": "a.b:c.d", "x": "a:b"}
    with pytest.raises(InputError, match="model: expected NAME=SOURCE or SOURCE, got 'x='"):
        named("model", ["x="])
