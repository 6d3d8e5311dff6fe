"""Calls of public functions with numbers that cannot be meant; prints what is not refused in one line."""

import json

import torch

from steinscope import FitSettings, InputError, TrainSettings, compare, discrepancy, fit_critic, gof_test, train
from steinscope.critics import MLP, Linear
from steinscope.kernels import fssd_test, ksd_estimate, ksd_test, ksdagg_test, linear_ksd_test, mmd_test
from steinscope.maps import RandomCosines
from steinscope.models import EBM, ICA, RBM, Gaussian, Perceptron
from steinscope.objectives import LearnedStein, score_matching
from steinscope.samplers import HMC, MALA, run_chains

x = torch.randn(150, 2, generator=torch.Generator().manual_seed(0))
nan = float("nan")
gaussian = Gaussian(torch.zeros(2))
numbers = ("a", None, [1], nan, -1, True, object())
counts = (*numbers, 2.5, 2**70)
seeds = ("a", None, [1], nan, -1, True, 2.5, 2**70)
quick = {"critics": "mean"}
linear = {"critics": "linear"}
flags = ("no", 1, None, [True])
calls = {
    "gof_test": (
        lambda **o: gof_test(x, -x, **{**quick, **o}),
        {
            "alpha": numbers,
            "blocks": counts,
            "repeats": ("a", [1], nan, -1, 0, True, 2.5, 2**70),
            "seed": seeds,
            "dtype": (torch.float16, "a"),
            "device": ("nowhere", 2.5),
            "critics": (None, 3, []),
        },
    ),
    "discrepancy": (
        lambda **o: discrepancy(x, -x, **{**linear, **o}),
        {
            "l2": numbers,
            "folds": ("a", [1], nan, -1, True, 2.5, 2**70),
            "split": (None, "abc", (1, 2), (nan, 1, 1), 0.5),
            "jobs": ("a", -1, 2.5),
            "seed": seeds,
            "settings": (None, {}),
            "metric": (None, "wide"),
        },
    ),
    "compare": (
        lambda **o: compare({"a": -x}, x, **{**linear, **o}),
        {"l2": numbers, "folds": ("a", [1], -1, 2.5), "seed": seeds, "settings": (3,)},
    ),
    "fit_critic": (lambda **o: fit_critic(Linear(2), x, -x, **o), {"seed": seeds}),
    "FitSettings": (
        FitSettings,
        {
            "steps": ("a", None, -1, 2.5),
            "batch_size": ("a", -1, 2.5),
            "lr": ("a", [1], nan, -1),
            "lr_decay": flags,
            "weight_decay": numbers,
            "every": ("a", None, 0),
            "select": (None, 3, "best"),
            "patience": ("a", -1, 2.5),
        },
    ),
    "TrainSettings": (
        TrainSettings,
        {
            "steps": ("a", None, -1, 2.5),
            "batch_size": ("a", None, -1),
            "lr": ("a", [1], nan, -1, True, object()),
            "clip": ("a", [1], nan, 0),
            "betas": (None, 0.5, "ab", (1,), (nan, 0.5)),
            "lr_decay": ("no", 1, [True]),
            "weight_decay": numbers,
            "average": ("a", [1], 2),
            "noise": ("a", [1], -1),
            "seed": seeds,
        },
    ),
    "train": (
        lambda **o: train(Gaussian(torch.zeros(2)), x, **{"steps": 1, **o}),
        {
            "steps": ("a", -1, 1.5),
            "batch_size": ("a", None, 2.5),
            "validation": ("a", -1, 1.0, nan, True, [[1.0]]),
            "lr": ([1],),
            "clip": (0,),
            "optimiser": (3, "adam", lambda parameters: 3),
            "scheduler": (3, lambda optimiser: 3),
            "checkpoint_every": ("a", 0, 2.5),
            "keep": ("a", 0, 2.5),
            "log_every": ("a", 0, 2.5),
            "seed": seeds,
            "objective": ("best",),
            "device": ("nowhere",),
            "dtype": (torch.float16,),
        },
    ),
    "ksd_test": (
        lambda **o: ksd_test(x, -x, **o),
        {
            "alpha": numbers,
            "draws": counts,
            "bandwidth": numbers,
            "seed": seeds,
            "kernel": (None, "a"),
            "metric": (None, "a", 3),
        },
    ),
    "linear_ksd_test": (
        lambda **o: linear_ksd_test(x, -x, **o),
        {"alpha": numbers, "bandwidth": numbers, "seed": seeds},
    ),
    "ksd_estimate": (
        lambda **o: ksd_estimate(x, -x, **o),
        {"bandwidth": numbers, "seed": seeds, "estimator": (None, "a")},
    ),
    "fssd_test": (
        lambda **o: fssd_test(x, -x, **o),
        {
            "alpha": numbers,
            "locations": counts,
            "steps": ("a", None, -1, 2.5),
            "lr": numbers,
            "draws": counts,
            "train_share": numbers,
            "seed": seeds,
        },
    ),
    "ksdagg_test": (
        lambda **o: ksdagg_test(x, -x, **o),
        {"alpha": numbers, "draws": counts, "factors": (None, 3, "ab", (), ("a",), (nan,)), "seed": seeds},
    ),
    "mmd_test": (
        lambda **o: mmd_test(x, -x, **o),
        {"alpha": numbers, "draws": counts, "bandwidth": numbers, "seed": seeds},
    ),
    "MLP": (
        lambda **o: MLP(**{"dim": 2, **o}),
        {"dim": numbers, "width": numbers, "depth": numbers, "dropout": numbers, "seed": seeds},
    ),
    "Linear": (Linear, {"dim": numbers}),
    "RandomCosines": (
        lambda **o: RandomCosines(**{"dim": 2, **o}),
        {"dim": numbers, "count": numbers, "bandwidth": numbers, "seed": seeds},
    ),
    "Gaussian": (
        lambda **o: Gaussian(**{"mean": [0.0, 0.0], **o}),
        {
            "mean": ("a", None, [[1.0]], object()),
            "std": ("a", -1, nan, [1.0]),
            "covariance": ("a", 3.0, [[1.0, 2.0], [2.0, 1.0]]),
        },
    ),
    "Gaussian.sample": (lambda n=3, **o: gaussian.sample(n, **o), {"n": numbers, "seed": seeds}),
    "Perceptron": (
        lambda **o: Perceptron(**{"dim": 2, **o}),
        {"dim": numbers, "width": numbers, "depth": numbers, "seed": seeds},
    ),
    "EBM": (
        lambda **o: EBM.perceptron(**{"dim": 2, **o}),
        {"dim": ("a", None, nan, -1, (2, 0)), "width": numbers, "depth": numbers},
    ),
    "ICA": (lambda **o: ICA(**{"dim": 2, **o}), {"dim": numbers, "smoothing": numbers, "seed": seeds}),
    "RBM": (lambda **o: RBM.random(**{"dim": 2, "hidden": 3, **o}), {"dim": numbers, "hidden": numbers, "seed": seeds}),
    "MALA": (lambda **o: MALA(gaussian, **o), {"epsilon": numbers}),
    "HMC": (lambda **o: HMC(gaussian, **o), {"step_size": numbers, "leapfrogs": ("a", None, -1, 2.5)}),
    "run_chains": (
        lambda **o: run_chains(**{"sampler": MALA(gaussian), "x": x, "steps": 2, **o}),
        {
            "x": (None, 3, [1.0]),
            "steps": ("a", None, -1, 2.5),
            "every": ("a", 0, 2.5),
            "burn_in": ("a", None, -1, 2.5),
            "seed": seeds,
        },
    ),
    "LearnedStein": (
        LearnedStein,
        {"l2": numbers, "critic_steps": ("a", -1, 2.5), "shrinkage": ("a", [1], nan, -1, True, object())},
    ),
    "score_matching": (
        lambda **o: score_matching(x, gaussian, **o),
        {"batch_size": ("a", None, -1, 2.5), "seed": seeds},
    ),
}
faults = []
for name, (call, arguments) in calls.items():
    for argument, values in arguments.items():
        for value in values:
            try:
                call(**{argument: value})
                faults.append(f"{name}({argument}={value!r}): nothing was said")
            except InputError as error:
                if "\n" in str(error):
                    faults.append(f"{name}({argument}={value!r}): {error}")
            except Exception as error:
                faults.append(f"{name}({argument}={value!r}): {type(error).__name__} {error}")
print(json.dumps(faults))
