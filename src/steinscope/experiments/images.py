"""The paper's images: a deep EBM trained on digits and clothes, its samples, and what a critic says about it.

The energy is a perceptron times a learned Gaussian, in logit space. Samples come from tempered Langevin dynamics that
starts at uniform noise. The discrepancy judges without samples: the model along its training beside simpler models.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from steinscope.comparison import compare
from steinscope.data.images import to_logits
from steinscope.densities import from_log_prob
from steinscope.errors import NonFiniteError
from steinscope.experiments.image_data import SETTINGS, SMOKE_SETTINGS, restore, save_grid, take_images, train_by_lsd
from steinscope.experiments.image_judge import describe, make_judge
from steinscope.experiments.image_models import load_flow, load_rbm
from steinscope.experiments.rates import FIRST_SEED
from steinscope.experiments.runner import Experiment, Trial, write_csv
from steinscope.gof.driver import gof_test
from steinscope.models.ebm import EBM
from steinscope.models.gaussian import Gaussian
from steinscope.plots import COLOURS, PAGE_WIDTH, new_figure, save_figure
from steinscope.samplers.chains import run_chains
from steinscope.samplers.langevin import TemperedSGLD
from steinscope.settings import FitSettings
from steinscope.support.normal import normal_quantile
from steinscope.support.randomness import make_generator, normal_rows, uniform_rows
from steinscope.training.jitter import noise_left

__all__ = ["EXPERIMENT", "uniform_logits"]

MODELS = "models"
# What the models are judged on.
JUDGED = {"logits": "logits of test images", "smoothed": "smoothed logits of test images, which the EBM is trained on"}
# The annealed chains start at the Gaussian of the noisiest images, with all its covariances: from a diagonal one nearly
# all clothes end as shoes and trousers. At each checkpoint, the noisiest first, they take steps of Langevin dynamics at
# a temperature, whose size is this share of the variance of the noise. A few steps cool down; after many, all chains
# end in the same few images. One step takes the mean of the plain logits given the smoothed ones (Tweedie's formula).
_TEMPERATURE, _STEP_SHARE, _COLD, _COLD_STEPS = 0.7, 0.125, 0.1, 3
# Chains that are explored: where they start, step size, noise scale, number of steps. The first four are the paper's.
EXPLORED = {
    "noise-0.01": ("uniform", 1.0, 0.01, 300),
    "noise-0.1": ("uniform", 1.0, 0.1, 300),
    "steps-30": ("uniform", 1.0, 0.01, 30),
    "steps-1000": ("uniform", 1.0, 0.01, 1000),
    "small-steps": ("uniform", 0.2, 0.01, 1000),
    "gaussian-30": ("gaussian", 1.0, 0.01, 30),
    "gaussian-1000": ("gaussian", 1.0, 0.01, 1000),
}


def uniform_logits(n: int, dim: int, seed: int = 0) -> Tensor:
    """The logits of uniform noise: the standard logistic distribution."""
    like = torch.empty(n, dim)
    return torch.logit(uniform_rows(like, make_generator(seed)).clamp(1e-6, 1 - 1e-6))


def _make_model(settings: Mapping[str, Any], data: str) -> EBM:
    """The Gaussian starts at the data's mean and standard deviation plus 1."""
    size = settings["size"]
    look = to_logits(take_images(data, "train", settings["look_images"], size), seed=0).flatten(1)
    return EBM.perceptron(size**2, settings["width"], mean=look.mean(0), std=look.std(0) + 1)


def _save_samples(path: Path, sampler: TemperedSGLD, start: Tensor, steps: int, size: int) -> Tensor | None:
    """Run chains and write where they end as a grid; None, and no grid, for chains that diverge."""
    try:
        found = run_chains(sampler, start, steps, seed=1, progress=False).state.x
    except NonFiniteError:
        return None
    save_grid(path, found, size)
    return found


def _prepare(settings: Mapping[str, Any], out: Path) -> None:
    for data in settings["data"]:
        _train(settings, data, out)


def _train(settings: Mapping[str, Any], data: str, out: Path) -> None:
    """Train the model of a data set. Each checkpoint also leaves a grid of samples."""
    size, every = settings["size"], settings["steps"] // settings["checkpoints"]

    def draw_samples(step: int, model: nn.Module, row: Mapping[str, float]) -> None:
        if step % every == 0:
            path, start = out / "along" / f"{data}-{step:06d}.png", uniform_logits(settings["samples"], size**2)
            sampler = TemperedSGLD(model, settings["epsilon"], settings["sigma"])
            _save_samples(path, sampler, start, settings["chain_steps"], size)

    train_by_lsd(
        _make_model(settings, data),
        data,
        settings,
        out / MODELS / data,
        checkpoint_every=every,
        keep=None,
        callbacks=[draw_samples],
    )


def _trials(settings: Mapping[str, Any]) -> list[Trial]:
    parts = ("samples", *(part for part in JUDGED if part == "logits" or settings["smoothing"]))
    return [{**settings, "data": data, "part": part} for data in settings["data"] for part in parts]


def _run(trial: Trial, out: Path) -> Trial:
    return _draw_samples(trial, out) if trial["part"] == "samples" else _judge(trial, out)


def _draw_samples(trial: Trial, out: Path) -> Trial:
    data, size = trial["data"], trial["size"]
    model = restore(_make_model(trial, data), out / MODELS / data)
    starts = {
        "uniform": uniform_logits(trial["samples"], size**2, seed=2),
        "gaussian": _full_gaussian(trial).sample(trial["samples"], seed=2),
    }
    found = {}
    if trial["smoothing"]:
        found["annealed"] = _annealed(trial, out)
        save_grid(out / f"{data}-annealed.png", found["annealed"], size)
    sampler = TemperedSGLD(model, trial["epsilon"], trial["sigma"])
    plain = _save_samples(out / f"{data}.png", sampler, starts["uniform"], trial["chain_steps"], size)
    if plain is not None:
        found["plain"] = plain
    images = to_logits(take_images(data, "test", trial["samples"], size), seed=1)
    save_grid(out / f"{data}-data.png", images, size)
    for name, (start, epsilon, sigma, steps) in EXPLORED.items():
        steps = min(steps, trial["chain_steps"])
        sampler = TemperedSGLD(model, epsilon, sigma)
        _save_samples(out / f"{data}-{name}.png", sampler, starts[start], steps, size)
    judge = make_judge(data)
    judged = {} if judge is None else {name: judge.judge(x) for name, x in {**found, "real images": images}.items()}
    return {
        "brightness": float(torch.sigmoid(plain).mean()) if plain is not None else None,
        "brightness_of_data": float(torch.sigmoid(images).mean()),
        "judge_error": None if judge is None else judge.error,
        "verdicts": {name: asdict(verdict) for name, verdict in judged.items()},
    }


def _annealed(trial: Trial, out: Path) -> Tensor:
    """Chains that follow the model through its training, while the noise falls, and end at plain logits."""
    data = trial["data"]
    every = trial["steps"] // trial["checkpoints"]
    model, x = _make_model(trial, data), None
    for step in range(every, trial["steps"] + 1, every):
        deviation = _deviation(trial, step)
        is_last = step == every * trial["checkpoints"]
        if deviation == trial["smoothing"] and not is_last:
            continue
        restore(model, out / MODELS / data, step)
        if x is None:
            x = _full_gaussian(trial, deviation).sample(trial["samples"], seed=FIRST_SEED)
        x = _langevin(model, x, _STEP_SHARE * deviation**2, _TEMPERATURE, trial["walk_steps"], seed=FIRST_SEED + step)
    assert x is not None
    x = _langevin(model, x, 2 * _STEP_SHARE * trial["smoothing"] ** 2, _COLD, _COLD_STEPS, seed=0)
    return run_chains(TemperedSGLD(model, trial["smoothing"] ** 2, 0.0), x, 1, progress=False).state.x


def _langevin(model: Any, x: Tensor, epsilon: float, temperature: float, steps: int, seed: int) -> Tensor:
    sampler = TemperedSGLD(model, epsilon / 2, math.sqrt(epsilon * temperature))
    return run_chains(sampler, x, steps, seed=seed, progress=False).state.x


def _deviation(trial: Trial, step: int) -> float:
    """The standard deviation of the noise on the logits that the model of a step was trained with."""
    return math.hypot(trial["smoothing"], (trial["noise"] or 0.0) * noise_left(step, trial["steps"]))


def _judge(trial: Trial, out: Path) -> Trial:
    """One table for the model along its training and simpler ones, and a test of each.

    On smoothed logits only models that know of the smoothing are compared.
    """
    data, size = trial["data"], trial["size"]
    smoothing = trial["smoothing"] if trial["part"] == "smoothed" else 0.0
    every = trial["steps"] // trial["checkpoints"]
    models: dict[str, Any] = {
        f"EBM, step {step}": restore(_make_model(trial, data), out / MODELS / data, step)
        for step in range(every, trial["steps"] + 1, every)
        if _deviation(trial, step) == trial["smoothing"] or step + every > trial["steps"]
    }
    last = models[f"EBM, step {every * trial['checkpoints']}"]
    models["Gaussian of the EBM alone"] = Gaussian(last.mean.detach(), std=last.log_std.detach().exp())
    models["Gaussian, full covariance"] = _full_gaussian(trial, smoothing)
    if trial["rbm"] is not None and not smoothing:
        models["RBM"] = load_rbm(trial["rbm"], data, size**2, trial["rbm_hidden"])
    if trial["flow"] is not None and data == "mnist" and not smoothing:
        flow = load_flow(trial["flow"], trial["flow_scale"])
        models["Glow"] = from_log_prob(lambda x: flow.log_prob(x.view(len(x), size, size)))
    x = to_logits(take_images(data, "test", trial["test_images"], size), seed=1).flatten(1)
    x = x + smoothing * normal_rows(x, make_generator(2))
    scores = {}
    for name, model in models.items():
        density = model if callable(getattr(model, "score", None)) else from_log_prob(model.log_prob)
        scores[name] = torch.cat([density.score(part).detach() for part in x.split(500)])
    ranking = compare(
        scores,
        x,
        folds=None,
        metric="whitened",
        split=(0.8, 0.1, 0.1),
        settings=FitSettings(steps=trial["judge_steps"], batch_size=128, lr=1e-3),
        progress=False,
    )
    tests = {name: gof_test(x, score) for name, score in scores.items()}
    return {
        "models": [
            {**row, "test_statistic": tests[row["model"]].statistic, "test_pvalue": tests[row["model"]].pvalue}
            for row in ranking.rows()
        ],
        "table": str(ranking),
    }


def _full_gaussian(trial: Trial, smoothing: float = 0.0) -> Gaussian:
    """Mean and covariance of the training images, the covariance with a little added so that it can be inverted."""
    images = take_images(trial["data"], "train", trial["train_images"], trial["size"])
    x = to_logits(images, seed=0).flatten(1)
    covariance = torch.cov(x.double().T)
    covariance += (1e-3 * covariance.diagonal().mean() + smoothing**2) * torch.eye(len(covariance))
    return Gaussian(x.mean(0), covariance.float())


def _report(results: Sequence[tuple[Trial, Trial]], out: Path) -> list[str]:
    lines, rows, verdicts = [], [], []
    for trial, result in results:
        if trial["part"] not in JUDGED:
            continue
        title = f"{trial['data']}, {JUDGED[trial['part']]}"
        lines += [f"{title}: held-out discrepancies", *result["table"].split("\n"), "test of each model:"]
        ordered = result["models"]
        for row in ordered:
            lines.append(f"  {row['model']:<28} statistic {row['test_statistic']:.1f}, p = {row['test_pvalue']:.2g}")
        rows += [{"data": trial["data"], "judged_on": trial["part"], **row} for row in ordered]
    write_csv(out / "images.csv", rows)
    _draw(rows, out / "images.png")
    for trial, result in results:
        if trial["part"] == "samples":
            name, brightness, of_data = trial["data"], result["brightness"], result["brightness_of_data"]
            found = (
                "the chains from uniform noise diverged"
                if brightness is None
                else f"samples in {name}.png, mean brightness {brightness:.3f} ({of_data:.3f} in the data)"
            )
            lines.append(f"{name}: {found}")
            for kind, verdict in result["verdicts"].items():
                lines.append(f"  {kind}: {describe(verdict)}")
                verdicts.append({"data": name, "samples": kind, "judge_error": result["judge_error"], **verdict})
    if verdicts:
        write_csv(out / "images-samples.csv", verdicts)
    return [*lines, "Paper (figure): samples that show digits and clothes; no numbers."]


def _draw(rows: Sequence[Mapping[str, Any]], path: Path) -> None:
    """The discrepancies of all models with 95% intervals, one of the axes for what they are judged on."""
    rows = [row for row in rows if row["lsd"] is not None]
    parts = list(dict.fromkeys((row["data"], row["judged_on"]) for row in rows))
    most = max(sum((row["data"], row["judged_on"]) == part for row in rows) for part in parts)
    figure, axes = new_figure(len(parts), 1, width=PAGE_WIDTH, height=0.8 + 0.2 * most)
    for ax, part in zip(axes[:, 0], parts, strict=True):
        own = [row for row in rows if (row["data"], row["judged_on"]) == part]
        half = [normal_quantile(0.975) * row["stderr"] for row in own]
        places = range(len(own))
        ax.errorbar([row["lsd"] for row in own], places, xerr=half, fmt="o", markersize=4, color=COLOURS["train"])
        ax.set_yticks(places, [row["model"] for row in own])
        ax.invert_yaxis()
        ax.set_title(f"{part[0]}, {part[1]}")
    axes[-1, 0].set_xlabel("held-out LSD, with 95% intervals")
    save_figure(figure, path)


QUICK = {
    **SETTINGS,
    "smoothing": 2.0,
    "steps": 3200,
    "lr": 1e-3,
    "noise": 6.0,
    "average": 0.99,
    "checkpoints": 20,
    "walk_steps": 30,
    "epsilon": 1.0,
    "sigma": 0.01,
    "chain_steps": 1000,
    "rbm": None,
    "rbm_hidden": 100,
    "flow": None,
    "flow_scale": "quick",
}

EXPERIMENT = Experiment(
    scales={
        "smoke": {**QUICK, **SMOKE_SETTINGS, "steps": 4, "checkpoints": 2, "chain_steps": 5, "walk_steps": 5},
        "quick": QUICK,
        "paper": {
            **QUICK,
            "smoothing": 0.0,
            "steps": 46_900,
            "checkpoints": 10,
            "critic": "field",
            "noise": None,
            "lr": 1e-4,
            "critic_lr": 1e-4,
            "lr_decay": False,
            "average": None,
        },
    },
    trials=_trials,
    run=_run,
    report=_report,
    prepare=_prepare,
    draw=_draw,
)
