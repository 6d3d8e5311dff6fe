"""The paper's RBMs of images: 100 hidden units trained by LSD on digits and clothes, and samples of Gibbs chains."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from steinscope.data.images import to_logits
from steinscope.estimation import discrepancy
from steinscope.experiments.image_data import SETTINGS, SMOKE_SETTINGS, save_grid, take_images, train_by_lsd
from steinscope.experiments.image_judge import describe, make_judge
from steinscope.experiments.image_models import RBMS, load_rbm, make_rbm
from steinscope.experiments.runner import Experiment, Trial, write_csv
from steinscope.plots import COLOURS, PAGE_WIDTH, new_figure, save_figure
from steinscope.settings import FitSettings
from steinscope.support.normal import normal_quantile

__all__ = ["EXPERIMENT"]


def _prepare(settings: Mapping[str, Any], out: Path) -> None:
    for data in settings["data"]:
        look = take_images(data, "train", settings["look_images"], settings["size"])
        model = make_rbm(settings["size"] ** 2, settings["hidden"], to_logits(look, seed=0).flatten(1).mean(0))
        every = max(1, settings["steps"] // 5)
        train_by_lsd(model, data, settings, out / RBMS / data, checkpoint_every=every)


def _trials(settings: Mapping[str, Any]) -> list[Trial]:
    return [{**settings, "data": data} for data in settings["data"]]


def _run(trial: Trial, out: Path) -> Trial:
    data, size = trial["data"], trial["size"]
    model = load_rbm(out, data, size**2, trial["hidden"])
    samples = model.gibbs(trial["samples"], steps=trial["gibbs_steps"], seed=1)
    save_grid(out / f"{data}.png", samples, size)
    judge = make_judge(data)
    x = to_logits(take_images(data, "test", trial["test_images"], size), seed=1).flatten(1)
    with torch.no_grad():
        score = model.score(x)
    found = discrepancy(
        x,
        score,
        metric="whitened",
        folds=None,
        split=(0.8, 0.1, 0.1),
        settings=FitSettings(steps=trial["judge_steps"], batch_size=128, lr=1e-3),
        progress=False,
    )
    verdict = {} if judge is None else {"judge_error": judge.error, **asdict(judge.judge(samples))}
    return {"lsd": found.value, "stderr": found.stderr, "fisher_bound": found.fisher_bound, **verdict}


def _report(results: Sequence[tuple[Trial, Trial]], out: Path) -> list[str]:
    rows = [{"data": trial["data"], **result} for trial, result in results]
    write_csv(out / "rbm-images.csv", rows)
    _draw(rows, out / "rbm-images.png")
    lines = [
        f"{row['data']}: held-out LSD {row['lsd']:.1f} ± {row['stderr']:.1f}; samples in {row['data']}.png"
        + (f": {describe(row)}" if "sure" in row else "")
        for row in rows
    ]
    return [*lines, "Paper (figure): samples that show strokes of digits and outlines of clothes; no numbers."]


def _draw(rows: Sequence[Mapping[str, Any]], path: Path) -> None:
    figure, ((ax,),) = new_figure(1, 1, width=PAGE_WIDTH, height=0.8 + 0.3 * len(rows))
    half = [normal_quantile(0.975) * row["stderr"] for row in rows]
    ax.errorbar(
        [row["lsd"] for row in rows], range(len(rows)), xerr=half, fmt="o", markersize=4, color=COLOURS["train"]
    )
    ax.set_yticks(range(len(rows)), [row["data"] for row in rows])
    ax.set(xlabel="held-out LSD, with 95% intervals", ylim=(len(rows) - 0.5, -0.5))
    save_figure(figure, path)


QUICK = {
    **SETTINGS,
    "hidden": 100,
    "width": 500,
    "smoothing": 0.0,
    "steps": 1000,
    "lr": 5e-3,
    "average": None,
    "gibbs_steps": 2000,
}

EXPERIMENT = Experiment(
    scales={
        "smoke": {**QUICK, **SMOKE_SETTINGS, "hidden": 5, "steps": 5, "gibbs_steps": 5},
        "quick": QUICK,
        "paper": {
            **QUICK,
            "width": 1000,
            "steps": 46_900,
            "critic": "field",
            "lr": 1e-3,
            "critic_lr": 1e-3,
            "lr_decay": False,
        },
    },
    trials=_trials,
    run=_run,
    report=_report,
    prepare=_prepare,
    draw=_draw,
)
