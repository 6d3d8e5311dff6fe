"""Numbers as users may give them, in a process without the checks of types, which would refuse some of them first."""

import json
import subprocess
import sys

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
