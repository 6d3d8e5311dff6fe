"""Numbers as users may give them, in a process without the checks of types, which would refuse some of them first."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

BEGIN = """
import json, warnings
import numpy as np, torch
warnings.simplefilter("error")
from steinscope import *
x = torch.randn(150, 2, generator=torch.Generator().manual_seed(0))
"""

NUMPY = """
from steinscope.kernels import *
level, count, seed, blocks = np.float32(0.25), np.int64(2), np.uint8(3), np.int32(5)
results = {
    "gof": gof_test(x, 0.5 - x, critics="mean", alpha=level, blocks=blocks, repeats=count, seed=seed),
    "discrepancy": discrepancy(x, 0.5 - x, critics="linear", l2=level, folds=count, seed=seed),
    "compare": compare({"a": 0.5 - x}, x, critics="linear", l2=level, folds=count, seed=seed),
    "ksd": ksd_test(x, -x, bandwidth=level, draws=blocks, alpha=level, seed=seed),
    "linear-ksd": linear_ksd_test(x, -x, bandwidth=level, alpha=level, seed=seed),
    "fssd": fssd_test(x, -x, locations=count, steps=count, lr=level, draws=blocks, alpha=level, seed=seed),
    "ksdagg": ksdagg_test(x, -x, factors=(level,), draws=blocks, alpha=level, seed=seed),
    "mmd": mmd_test(x, x, bandwidth=level, draws=blocks, alpha=level, seed=seed),
}
print(json.dumps({name: result.to_dict() for name, result in results.items()}))
"""


def in_process(script, *arguments):
    command = [sys.executable, "-c", BEGIN + script, *arguments]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)


def test_numbers_of_numpy_are_numbers_and_results_stay_json():
    results = in_process(NUMPY)
    assert {result["alpha"] for result in results.values() if "alpha" in result} == {0.25}
    assert results["discrepancy"]["l2"] == results["compare"]["l2"] == 0.25


def test_numbers_that_cannot_be_meant_are_refused_in_one_line():
    command = [sys.executable, Path(__file__).parent / "bad_numbers.py"]
    assert json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout) == []


DEFAULT_TYPE = """
import sys
from steinscope.data import TOY, draw_toy, synthetic_images
from steinscope.kernels import *
from steinscope.maps import RandomCosines
from steinscope.models import EBM, ICA, RBM, Gaussian, Glow
from steinscope.samplers import MALA, run_chains
torch.set_default_dtype(getattr(torch, sys.argv[1]))
x = x.to(torch.float32)
from steinscope.bayes import compare_samples
quick = FitSettings(steps=10, every=5)
samples = {"a": x.repeat(4, 1), "b": x.repeat(4, 1) + 0.1}
model, flow = EBM.perceptron(2, width=8), Glow((4, 4), squeezes=(True,), blocks=1, channels=4)
results = {
    "gof": gof_test(x, 0.3 - x).pvalue,
    "discrepancy": discrepancy(x, 0.3 - x, folds=None, settings=quick).value,
    "samples": compare_samples(samples, from_log_prob(lambda y: -(y**2).sum(1)), critics="linear").values.tolist(),
    "fssd": fssd_test(x, -x, steps=5).statistic,
    "ksdagg": ksdagg_test(x, -x, draws=50).statistic,
    "mmd": mmd_test(x, x + 0.1, draws=50).statistic,
    "train": float(train(model, x, steps=3, progress=False).history.model_loss[-1]),
    "chains": run_chains(MALA(Gaussian([0.0, 0.0])), x, 3).trajectory.sum().item(),
    "toy": {name: float(draw_toy(name, 10).sum()) for name in TOY},
    "images": float(torch.as_tensor(synthetic_images(5)).double().sum()),
    "models": [
        one.log_prob(part).sum().item()
        for one, part in [(ICA(2), x), (RBM.random(2, 3), x), (model, x), (flow, x[:16].reshape(2, 4, 4))]
    ],
    "features": RandomCosines(2)(x).sum().item(),
}
print(json.dumps(results))
"""


@pytest.mark.parametrize("dtype", ["float64", "bfloat16"])
def test_results_do_not_depend_on_the_default_type_of_torch(dtype):
    assert in_process(DEFAULT_TYPE, dtype) == in_process(DEFAULT_TYPE, "float32")


INFERENCE = """
from steinscope.critics import MLP
from steinscope.kernels import *
from steinscope.models import EBM, Gaussian
from steinscope.samplers import MALA, draw_samples, run_chains
from steinscope.objectives import score_matching
quick = FitSettings(steps=4, every=2)
target = from_log_prob(lambda y: -0.5 * (y**2).sum(1))


def results(x, model):
    return {
        "gof": gof_test(x, target).pvalue,
        "split": gof_test(x, target, scheme="split").pvalue,
        "discrepancy": discrepancy(x, target, folds=None, settings=quick).value,
        "compare": compare({"a": target}, x, critics="mlp", folds=2, settings=quick).values.tolist(),
        "fit": fit_critic(MLP(2, width=4), x, -x, settings=quick).critic(x.clone()).sum().item(),
        "fssd": fssd_test(x, target, steps=3).pvalue,
        "ksd": ksd_test(x, target, draws=20).pvalue,
        "train": float(train(model, x, steps=2, progress=False).history.model_loss[-1]),
        "chains": float(run_chains(MALA(target), x, 2).trajectory.sum()),
        "matching": score_matching(x, target).value,
    }


models = [Gaussian(torch.zeros(2)) for _ in range(2)]
plain = results(x, models[0])
with torch.inference_mode():
    inside = results(x.clone(), models[1])
    try:
        train(Gaussian(torch.zeros(2)), x, steps=1)
    except InputError as error:
        said = str(error)
print(json.dumps([plain, inside, said]))
"""


def test_everything_works_under_inference_mode():
    plain, inside, said = in_process(INFERENCE)
    assert inside == plain
    assert said == "model: it was made under torch.inference_mode, where nothing can be trained"
