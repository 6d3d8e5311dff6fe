"""`steinscope compare`."""

import csv
import json

import numpy as np
import pytest

from steinscope import FitSettings

from helpers import assert_one_line


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


def test_a_report_is_written(arrays, command, here):
    done = command("compare", "x.npy", "--score", "a=scores.npy", "--folds", 0, "--steps", 5, "--report", "rank.html")
    assert done.code == 0 and "report: rank.html" in done.out
    assert "a is the only model" in (here / "rank.html").read_text()


def test_options_of_the_fit_reach_it(arrays, command, monkeypatch):
    seen = []
    monkeypatch.setattr("steinscope.comparison.compare", lambda models, x, **options: seen.append(options) or "a table")
    settings = (
        "--steps 30 --batch-size 50 --lr 0.02 --no-lr-decay --weight-decay 0.5 --every 7 --select mean --patience 3"
    )
    for options in ("", settings):
        assert command("compare", "x.npy", "--score", "scores.npy", *options.split(), "--seed", 4).out == "a table\n"
    assert seen[0]["settings"] == FitSettings() and seen[0]["seed"] == 4
    assert seen[1]["settings"] == FitSettings(
        steps=30, batch_size=50, lr=0.02, lr_decay=False, weight_decay=0.5, every=7, select="mean", patience=3
    )


@pytest.mark.parametrize(
    "arguments, message",
    [
        ("compare x.npy", "score, model: give at least one model"),
        (
            "compare x.npy scores.npy",
            r"held against one model: .*; or is scores.npy a file of scores\? Give it as --score scores.npy",
        ),
        ("compare x.npy --score scores.npy --chains", "chains: expected an array of shape"),
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
    assert_one_line(command(*arguments.split()), message)
