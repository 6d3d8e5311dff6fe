"""Appendix A of the paper: choosing the critic by mean minus standard deviation.

Data from N(0, I) and the model N(1, I) in 10 dimensions, with 100 training points, so that the critic overfits. Each
critic along the way is also judged by its mean Stein value, and by its penalised objective, on a large independent
sample, which nobody has in practice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from steinscope.critics.base import Critic
from steinscope.critics.fitting import fit_critic
from steinscope.critics.mlp import MLP
from steinscope.experiments.runner import Experiment, Trial, write_csv
from steinscope.models.gaussian import Gaussian
from steinscope.plots import COLOURS, PAGE_WIDTH, legend_above, new_figure, save_figure
from steinscope.settings import SELECTIONS, FitSettings, Validation
from steinscope.stein import PenalisedLSD

__all__ = ["EXPERIMENT"]


def _trials(settings: Mapping[str, Any]) -> list[Trial]:
    fixed = {key: value for key, value in settings.items() if key != "repetitions"}
    return [{"seed": seed, **fixed} for seed in range(settings["repetitions"])]


def _run(trial: Trial, out: Path) -> Trial:
    dim, n, seed, l2 = trial["dim"], trial["n"], trial["seed"], trial["l2"]
    data, model = Gaussian(torch.zeros(dim)), Gaussian(torch.ones(dim))
    train, validation = data.sample(n, seed=1000 + seed), data.sample(n, seed=2000 + seed)
    large = data.sample(trial["large"], seed=3000 + seed)
    truth: dict[str, list[float]] = {"mean": [], "norm": []}

    @torch.no_grad()
    def look(step: int, critic: Critic) -> None:
        values, norms = critic.stein(large, model.score(large))
        truth["mean"].append(float(values.mean()))
        truth["norm"].append(float(norms.mean()))

    with torch.no_grad():
        scores = model.score(train), model.score(validation)
    fit = fit_critic(
        MLP(dim, seed=seed),
        train,
        scores[0],
        validation=(validation, scores[1]),
        objective=PenalisedLSD(l2),
        # All critics along the way are wanted, so that the fit must not stop early.
        settings=FitSettings(
            steps=trial["steps"], lr_decay=False, every=trial["every"], select="mu-sigma", patience=None
        ),
        seed=seed,
        callback=look,
        progress=False,
    )
    return {**fit.history.to_dict(), "large_mean": truth["mean"], "large_norm": truth["norm"]}


def _chosen(result: Trial, rule: str, l2: float) -> int:
    """The position that a rule chooses from what the validation points say."""
    columns = zip(result["validation_mean"], result["validation_std"], result["validation_norm"], strict=True)
    return int(np.argmax([SELECTIONS[rule](Validation(*column, l2)) for column in columns]))


def _report(results: Sequence[tuple[Trial, Trial]], out: Path) -> list[str]:
    trial, first = results[0]
    truth = trial["dim"] / (2 * trial["l2"])
    rules = {"mu-sigma": (COLOURS["selected"], "-."), "mean": (COLOURS["other"], ":")}
    figure, (axes,) = new_figure(1, 2, width=PAGE_WIDTH / 2, height=3.2)
    step = np.array(first["step"])
    for name, line in {"train": "-", "validation": "--"}.items():
        mean, std = np.array(first[f"{name}_mean"]), np.array(first[f"{name}_std"])
        axes[0].plot(step, mean, color=COLOURS[name], linestyle=line, label=f"{name} points")
        axes[0].fill_between(step, mean - std, mean + std, color=COLOURS[name], alpha=0.15, linewidth=0)
    axes[0].axhline(truth, color=COLOURS["truth"], linewidth=1, label="true discrepancy")
    axes[0].set(xlabel="step", ylabel="Stein values, mean ± standard deviation", title="What the selection sees")
    objective = np.array(first["large_mean"]) - trial["l2"] * np.array(first["large_norm"])
    axes[1].plot(step, objective, color=COLOURS["truth"])
    axes[1].set(xlabel="step", ylabel="penalised LSD", title=f"Penalised LSD on {trial['large']} other points")
    axes[0].set(xscale="log", ylim=(-2 * truth, 5 * truth))
    axes[1].set(xscale="log", ylim=(-truth, truth))
    for ax in axes:
        for rule, (colour, line) in rules.items():
            chosen = step[_chosen(first, rule, trial["l2"])]
            ax.axvline(chosen, color=colour, linestyle=line, linewidth=2, label=f"chosen by {rule}")
    legend_above(figure, axes[0], columns=3)
    save_figure(figure, out / "selection.png")

    rows = []
    for trial, result in results:
        objective = np.array(result["large_mean"]) - trial["l2"] * np.array(result["large_norm"])
        for rule in SELECTIONS:
            chosen = _chosen(result, rule, trial["l2"])
            rows.append(
                {
                    "seed": trial["seed"],
                    "rule": rule,
                    "step": result["step"][chosen],
                    "large_mean": result["large_mean"][chosen],
                    "objective": objective[chosen],
                    "best_objective": objective.max(),
                }
            )
    write_csv(out / "selection.csv", rows)
    lines = [f"True discrepancy {truth:g}, best penalised LSD possible {truth / 2:g}; {len(results)} repetitions."]
    for rule in SELECTIONS:
        chosen = [row for row in rows if row["rule"] == rule]
        shares = np.array([row["objective"] / row["best_objective"] for row in chosen])
        lines.append(
            f"{rule}: step {np.median([row['step'] for row in chosen]):.0f} (median); on independent points at least "
            f"75% of the best critic's penalised LSD in {(shares > 0.75).mean():.0%} of the repetitions."
        )
    lines.append("Paper: the best model is selected by mean minus standard deviation.")
    return lines


EXPERIMENT = Experiment(
    scales={
        "smoke": {"dim": 10, "n": 100, "l2": 0.5, "steps": 100, "every": 5, "large": 2000, "repetitions": 2},
        "quick": {"dim": 10, "n": 100, "l2": 0.5, "steps": 1000, "every": 5, "large": 10000, "repetitions": 8},
        "paper": {"dim": 10, "n": 100, "l2": 0.5, "steps": 1000, "every": 5, "large": 50000, "repetitions": 40},
    },
    trials=_trials,
    run=_run,
    report=_report,
)
