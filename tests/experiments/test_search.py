from steinscope.experiments import runner
from steinscope.experiments.runner import Experiment, reproduce
from steinscope.experiments.search import best_points, grid_points


def test_a_grid_has_all_points_and_all_keys():
    points = grid_points({"lr": [1, 2], "noise": [3]}, ["lr", "noise", "steps"])
    assert points == [{"lr": 1, "noise": 3, "steps": None}, {"lr": 2, "noise": 3, "steps": None}]


def test_the_best_point_of_each_cell_is_one_that_did_not_fail():
    searched = [
        ({"method": "a", "lr": 1}, {"value": None}),
        ({"method": "a", "lr": 2}, {"value": -3.0}),
        ({"method": "a", "lr": 3}, {"value": -4.0}),
        ({"method": "b", "lr": 1}, {"value": None}),
    ]
    assert best_points(searched, ["lr"], lambda trial: trial["method"], "value") == {"a": {"lr": 2}}


def test_what_a_search_chose_is_what_the_other_trials_have(tmp_path, monkeypatch):
    """The search is recorded like other trials, and is not run again."""
    ran = []

    def run(trial, out):
        ran.append(trial)
        return {"value": -abs(trial["lr"] - 2)}

    experiment = Experiment(
        scales={"smoke": {"rates": [1, 2, 3]}},
        search=lambda settings: [{"seed": 0, "lr": lr} for lr in settings["rates"]],
        choose=lambda settings, found: {**settings, "lr": max(found, key=lambda pair: pair[1]["value"])[0]["lr"]},
        trials=lambda settings: [{"seed": seed, "lr": settings["lr"]} for seed in (10, 11)],
        run=run,
        report=lambda results, out: [str([trial["lr"] for trial, _ in results])],
    )
    monkeypatch.setattr(runner, "load", lambda name: experiment)
    assert reproduce("fake", "smoke", tmp_path, jobs=1) == ["[2, 2]"] and len(ran) == 5
    ran.clear()
    assert reproduce("fake", "smoke", tmp_path, jobs=1) == ["[2, 2]"] and ran == []
