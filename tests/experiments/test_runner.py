import csv
import json
import subprocess
import sys
import time

import pytest

from steinscope import InputError
from steinscope.experiments import runner
from steinscope.experiments.runner import EXPERIMENTS, Experiment, load, redraw, reproduce


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_smoke(name, tmp_path):
    lines = reproduce(name, "smoke", tmp_path, jobs=1)
    assert any("Paper" in line for line in lines)
    assert (tmp_path / "report.txt").read_text().splitlines() == lines
    assert list(tmp_path.glob("*.png"))
    tables = list(tmp_path.glob("*.csv"))
    for table in tables:
        with table.open(newline="") as file:
            rows = list(csv.DictReader(file))
        cells = [cell for row in rows for cell in row.values()]
        assert cells and not {None, "nan", "inf"} & set(cells)
    assert tables
    if load(name).draw is not None:
        # The figure from the table alone is the one from the trials, dot by dot.
        pictures = [table.with_suffix(".png") for table in tables if table.with_suffix(".png").exists()]
        table = tmp_path / "null-pvalues.csv" if name == "null" else tmp_path / f"{name}.csv"
        drawn = (tmp_path / f"{name}.png").read_bytes()
        for picture in pictures:
            picture.unlink()
        assert redraw(name, table) == table.with_suffix(".png")
        assert table.with_suffix(".png").read_bytes() == drawn


def test_what_cannot_be_drawn_again_is_named(tmp_path):
    (tmp_path / "toy.csv").write_text("data,method\nmoons,lsd\n")
    with pytest.raises(
        InputError, match="table: expected a table of one of gaussian, gof, .*; toy draws what its trials"
    ):
        redraw("toy", tmp_path / "toy.csv")
    with pytest.raises(InputError, match="table: .*toy.csv is no table of gof: KeyError: 'dim'"):
        redraw("gof", tmp_path / "toy.csv")
    with pytest.raises(InputError, match="table: .*none.csv cannot be read: .*No such file"):
        redraw("gof", tmp_path / "none.csv")
    (tmp_path / "empty.csv").write_text("dim,hidden\n")
    with pytest.raises(InputError, match="table: .*empty.csv has no rows"):
        redraw("gof", tmp_path / "empty.csv")
    assert not list(tmp_path.glob("*.png"))


def fake(ran):
    def run(trial, out):
        ran.append(trial["number"])
        return {"square": trial["number"] ** 2}

    return Experiment(
        scales={"smoke": {"count": 5}},
        trials=lambda settings: [{"number": number} for number in range(settings["count"])],
        run=run,
        report=lambda results, out: [str([result["square"] for _, result in results])],
    )


def test_finished_trials_are_not_run_again(tmp_path, monkeypatch):
    ran = []
    monkeypatch.setattr(runner, "load", lambda name: fake(ran))
    assert reproduce("fake", "smoke", tmp_path, jobs=1) == ["[0, 1, 4, 9, 16]"]
    records = sorted((tmp_path / "trials").iterdir())
    assert len(records) == 5 and ran == [0, 1, 2, 3, 4]
    ran.clear()
    records[0].unlink()
    records[1].write_text(records[1].read_text()[:20])
    lost = {json.loads(text)["trial"]["number"] for record in records[2:] for text in [record.read_text()]}
    assert reproduce("fake", "smoke", tmp_path, jobs=1) == ["[0, 1, 4, 9, 16]"]
    assert set(ran) == set(range(5)) - lost


def test_a_record_that_was_changed_is_run_again(tmp_path, monkeypatch):
    ran = []
    monkeypatch.setattr(runner, "load", lambda name: fake(ran))
    reproduce("fake", "smoke", tmp_path, jobs=1)
    for record in (tmp_path / "trials").iterdir():
        record.write_text(record.read_text().replace('"square": 9', '"square": 8'))
    ran.clear()
    assert reproduce("fake", "smoke", tmp_path, jobs=1) == ["[0, 1, 4, 9, 16]"] and ran == [3]


def test_options_replace_settings(tmp_path, monkeypatch):
    ran = []
    monkeypatch.setattr(runner, "load", lambda name: fake(ran))
    assert reproduce("fake", "smoke", tmp_path, jobs=1, options={"count": 2}) == ["[0, 1]"]
    assert reproduce("fake", "smoke", tmp_path, jobs=1, options={"count": 3}) == ["[0, 1, 4]"]
    assert ran == [0, 1, 2]
    with pytest.raises(InputError, match="options: expected some of count, got 'size'"):
        reproduce("fake", "smoke", tmp_path, options={"size": 2})
    with pytest.raises(InputError, match=r'options: count is 5 by default, got "many"'):
        reproduce("fake", "smoke", tmp_path, options={"count": "many"})


SLOW = """
import sys, time
from steinscope.experiments import runner
def run(trial, out):
    time.sleep(0.2)
    open(sys.argv[1] + "/log", "a").write(f"{trial['number']}\\n")
    return {}
runner.load = lambda name: runner.Experiment(
    {"smoke": {}}, lambda settings: [{"number": n} for n in range(12)], run, lambda results, out: [str(len(results))]
)
print(runner.reproduce("slow", "smoke", sys.argv[1], jobs=1))
"""


def test_a_killed_run_goes_on_where_it_was(tmp_path):
    command = [sys.executable, "-c", SLOW, str(tmp_path)]
    process = subprocess.Popen(command)
    while len(list((tmp_path / "trials").glob("*.json"))) < 3:
        time.sleep(0.05)
    process.kill()
    process.wait()
    done = len(list((tmp_path / "trials").glob("*.json")))
    assert done < 12
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert output.strip() == "['12']"
    # A trial that had just ended may not have been recorded yet, and is run once more.
    assert len((tmp_path / "log").read_text().split()) in (12, 13)


@pytest.mark.slow
def test_trials_run_in_parallel_like_one_by_one(tmp_path):
    one, two = reproduce("selection", "smoke", tmp_path / "one", jobs=1), None
    two = reproduce("selection", "smoke", tmp_path / "two", jobs=2)
    assert one == two


@pytest.mark.parametrize(
    "arguments, message",
    [
        (("nothing",), "name: expected one of gaussian, .*, got 'nothing'"),
        (("gaussian", "huge"), "scale: expected one of smoke, quick, paper, got 'huge'"),
    ],
)
def test_bad_input(arguments, message, tmp_path):
    with pytest.raises(InputError, match=message):
        reproduce(*arguments, out=tmp_path)
    assert not list(tmp_path.iterdir())
