"""`steinscope test`."""

import json
from pathlib import Path

import numpy as np
import pytest

from steinscope.registries import KERNEL_TESTS

from helpers import assert_one_line


def test_a_test_of_arrays(arrays, command):
    done = command("test", "x.npy", "--score", "scores.npy")
    assert done.code == 0 and done.err == ""
    assert "the model is rejected" in done.out and "x[1] and x[2] have correlation 0." in done.out


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


def test_reports_are_written_as_a_whole(arrays, command, here):
    done = command("test", "x.npy", "--score", "scores.npy", "--report", "new/test.html")
    assert done.code == 0 and "report: new/test.html" in done.out
    assert "The model is rejected" in (here / "new/test.html").read_text()
    command("test", "x.npy", "--score", "scores.npy", "--method", "ksd", "--report", "ksd.html", "--quiet")
    assert "KSD test" in (here / "ksd.html").read_text()
    assert [path.name for path in (here / "new").iterdir()] == ["test.html"]


@pytest.mark.parametrize("method", KERNEL_TESTS)
def test_kernel_tests(arrays, command, method):
    """What the command prints is what the function returns."""
    entry = KERNEL_TESTS[method]
    source = ["--score", "scores.npy"] if entry.against == "scores" else ["--samples", "good.npy"]
    done = command("test", "x.npy", *source, "--method", method, "--seed", 3)
    assert done.code == 0 and done.out.strip() == str(entry.load()(arrays, np.load(source[1]), seed=3))


def test_schemes_critics_blocks_and_seeds(arrays, command, short_split):
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
    assert "300 points, 1 coordinate\n" in done.out and "mean z = " in done.out and "kernel z = " in done.out


def test_quiet_is_quiet_on_a_terminal(arrays, command, monkeypatch, short_split):
    monkeypatch.setenv("FORCE_COLOR", "1")
    options = ["--scheme", "split", "--quiet"]
    done = command("test", "x.npy", "--score", "scores.npy", *options)
    assert done.code == 0 and done.out == done.err == ""


@pytest.mark.parametrize(
    "arguments, message",
    [
        ("test", 'Command "test" parameter X requires an argument.'),
        ("test x.npy", "score, model: give the model as --score FILE or as --model NAME, got neither"),
        (
            "test x.npy scores.npy",
            "unexpected scores.npy; are these scores\\? Give them as --score scores.npy; see steinscope test --help",
        ),
        (
            "test x.npy --score scores.npy --chains",
            r"chains: expected an array of shape \(chains, draws, coordinates\)",
        ),
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
        ("test x.npy --model ending_models:a", "model: ending_models cannot be imported: SystemExit: 5"),
        ("test x.npy --model needing_models:a", "model: needing_models cannot be imported: No module named 'a_mod"),
        ("test x.npy --score scores.npy --alpha 2", "alpha: expected a number between 0 and 1, got 2"),
        ("test x.npy --score scores.npy --alpha 2 --method ksd", "alpha: expected a number between 0 and 1, got 2"),
        ("test x.npy --score scores.npy --alpha five", "Invalid value for --alpha: unable to convert"),
        ("test x.npy --score scores.npy --seed -1", 'Invalid value "-1" for --seed. Must be >= 0.'),
        ("test x.npy --score scores.npy --method deep", "method: expected one of learned, ksd"),
        ("test x.npy --score scores.npy --critics deep", "critics: expected 'auto', 'closed form' or some of 'mean'"),
        ("test x.npy --score scores.npy --method ksd --blocks 3", "blocks: this is an option of --method learned"),
        ("test x.npy --score scores.npy --scheme split --blocks 3", "blocks: this is an option of the prequential"),
        ("test x.npy --score scores.npy --method ksd --explain", "explain: only a learned test has a critic"),
        ("test x.npy --score scores.npy --method mmd", "samples: --method mmd compares with samples of the model"),
        ("test x.npy --samples x.npy", "samples: only --method mmd takes samples, got --method learned"),
        ("test x.npy --score scores.npy --report here", "report: expected a name that ends in .html, got here"),
        ("test x.npy --score scores.npy --report .", "report: . is a directory, expected the name of a .html file"),
        ("test x.npy --score scores.npy --report x.npy/r.html", "report: x.npy is a file, so x.npy/r.html cannot be"),
        ("test x.npy --score scores.npy --repot r.html", "Unknown option: --repot. Did you mean --report"),
    ],
)
def test_bad_input_is_one_line(arrays, command, arguments, message):
    np.save("short.npy", -arrays[1:])
    assert_one_line(command(*arguments.split()), message)


def test_the_header_of_a_file_names_the_coordinates(arrays, command):
    np.savetxt("x.csv", arrays, delimiter=",", header="age,height,income", comments="")
    done = command("test", "x.csv", "--score", "scores.npy", "--explain", "--report", "report.html")
    for text in (done.out, Path("report.html").read_text()):
        assert "height and income have correlation 0." in text and "x[" not in text


def test_a_support(here, command):
    x = np.random.default_rng(0).exponential(size=(1000, 2))
    np.save("x.npy", x)
    np.save("scores.npy", np.full_like(x, -1.0))
    undeclared = command("test", "x.npy", "--score", "scores.npy", "--critics", "closed form")
    assert "the model is rejected" in undeclared.out and "points end sharply" in undeclared.out
    ways = [
        ("positive", "--critics", "linear"),
        ("0,inf", "--critics", "linear"),
        ("positive 0,inf", "--method", "ksd"),
    ]
    for way in ways:
        done = command("test", "x.npy", "--score", "scores.npy", "--support", *way)
        assert "no misfit was found" in done.out and "unconstrained coordinates (log x)" in done.out
    ranked = command(
        "compare", "x.npy", "--score", "scores.npy", "--support", "positive", "--critics", "linear", "--json"
    )
    assert ranked.code == 0 and json.loads(ranked.out)["models"][0]["model"] == "scores"
    assert_one_line(command("test", "x.npy", "--score", "scores.npy", "--support", "posit"), "support: expected real")
    assert_one_line(command("test", "x.npy", "--samples", "x.npy", "--method", "mmd", "--support", "unit"), "support: ")


def test_a_discrete_model_is_refused(here, command):
    np.save("x.npy", np.random.default_rng(0).poisson(2.0, size=(200, 1)).astype(float))
    (here / "counts.py").write_text("from torch.distributions import Poisson\nmodel = Poisson(2.0)\n")
    assert_one_line(command("test", "x.npy", "--model", "counts:model"), "model: Poisson is discrete")
