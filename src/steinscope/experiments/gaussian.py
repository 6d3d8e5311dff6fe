"""Figure 3 of the paper: a critic recovers the optimum between Gaussians in 100 dimensions.

Data from N(0, I) against two models, N(0.3·1, I) and N(0, 1.5² I). The true discrepancy is E‖s_q - s_p‖² / 2λ and the
best critic is (s_q - s_p) / 2λ, both in closed form. Every point is seen about once, so the samples are as good as
fresh.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from steinscope.critics.base import Critic
from steinscope.critics.fitting import fit_critic
from steinscope.critics.mlp import MLP
from steinscope.experiments.runner import Experiment, Trial, write_csv
from steinscope.models.gaussian import Gaussian
from steinscope.plots import COLOURS, PAGE_WIDTH, new_figure, save_figure
from steinscope.settings import FitSettings
from steinscope.stein import PenalisedLSD

__all__ = ["EXPERIMENT"]

L2 = 0.5
MODELS = {"mean": "N(0.3·1, I)", "scale": "N(0, 1.5² I)"}


def _trials(settings: Mapping[str, Any]) -> list[Trial]:
    return [{"model": model, **settings} for model in MODELS]


def _model(name: str, dim: int) -> Gaussian:
    return Gaussian(torch.full((dim,), 0.3)) if name == "mean" else Gaussian(torch.zeros(dim), std=1.5)


def _run(trial: Trial, out: Path) -> Trial:
    dim, batch_size, steps = trial["dim"], trial["batch_size"], trial["steps"]
    data, model = Gaussian(torch.zeros(dim)), _model(trial["model"], dim)
    x, test = data.sample(batch_size * steps, seed=1), data.sample(5000, seed=2)
    with torch.no_grad():
        score, test_score = model.score(x), model.score(test)
        best = (test_score - data.score(test)) / (2 * L2)
    true_value = float(2 * L2 * best.square().sum(1).mean())
    curve: dict[str, list[float]] = {"step": [], "lsd": [], "critic_error": []}

    @torch.no_grad()
    def look(step: int, critic: Critic) -> None:
        values, _ = critic.stein(test, test_score)
        error = (critic(test) - best).square().sum(1).mean() / best.square().sum(1).mean()
        for name, value in (("step", step), ("lsd", values.mean()), ("critic_error", error.sqrt())):
            curve[name].append(float(value))

    fit_critic(
        MLP(dim, width=trial["width"], skip=True),
        x,
        score,
        objective=PenalisedLSD(L2),
        settings=FitSettings(steps=steps, batch_size=batch_size, lr=3e-3, every=max(1, steps // 40)),
        callback=look,
        progress=False,
    )
    return {"true_value": true_value, **curve}


def _report(results: Sequence[tuple[Trial, Trial]], out: Path) -> list[str]:
    rows, lines = [], []
    for trial, result in results:
        title = MODELS[trial["model"]]
        rows += [
            {"model": title, "true_value": result["true_value"], "step": step, "lsd": lsd, "critic_error": error}
            for step, lsd, error in zip(result["step"], result["lsd"], result["critic_error"], strict=True)
        ]
        lines.append(
            f"{title} in {trial['dim']} d: learned {result['lsd'][-1]:.3f}, true {result['true_value']:.3f} "
            f"({result['lsd'][-1] / result['true_value']:.1%}); critic within {result['critic_error'][-1]:.1%} "
            "of the best. Paper: a near-optimal critic is learned and the true discrepancy closely approximated."
        )
    write_csv(out / "gaussian.csv", rows)
    _draw(rows, out / "gaussian.png")
    return lines


def _draw(rows: Sequence[Mapping[str, Any]], path: Path) -> None:
    models = list(dict.fromkeys(row["model"] for row in rows))
    figure, axes = new_figure(2, len(models), width=PAGE_WIDTH / len(models), height=2.3)
    for column, model in enumerate(models):
        own = [row for row in rows if row["model"] == model]
        step, lsd, error = ([row[key] for row in own] for key in ("step", "lsd", "critic_error"))
        true_value = own[0]["true_value"]
        top, bottom = axes[:, column]
        top.plot(step, lsd, color=COLOURS["train"], label="learned")
        top.axhline(true_value, color=COLOURS["truth"], linestyle="--", linewidth=1, label="true")
        top.set(title=f"N(0, I) against {model}", ylim=(0, 1.15 * true_value))
        top.legend(frameon=False, fontsize=9, loc="lower right")
        bottom.plot(step, [100 * value for value in error], color=COLOURS["train"])
        bottom.set(xlabel="step", ylim=(0, None))
    axes[0, 0].set_ylabel("Stein discrepancy")
    axes[1, 0].set_ylabel("error of the critic in %")
    save_figure(figure, path)


EXPERIMENT = Experiment(
    scales={
        "smoke": {"dim": 10, "width": 50, "steps": 200, "batch_size": 200},
        "quick": {"dim": 100, "width": 300, "steps": 1000, "batch_size": 1000},
        "paper": {"dim": 100, "width": 300, "steps": 3000, "batch_size": 1000},
    },
    trials=_trials,
    run=_run,
    report=_report,
    draw=_draw,
)
