"""Learn the Stein discrepancy: test, compare and train unnormalised densities without sampling from them."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from steinscope.comparison import Ranking as Ranking
    from steinscope.comparison import compare as compare
    from steinscope.densities import from_energy as from_energy
    from steinscope.densities import from_log_prob as from_log_prob
    from steinscope.densities import from_score as from_score
    from steinscope.errors import InputError as InputError
    from steinscope.errors import NonFiniteError as NonFiniteError
    from steinscope.estimation import Estimate as Estimate
    from steinscope.estimation import discrepancy as discrepancy
    from steinscope.fitting import fit_critic as fit_critic
    from steinscope.gof import gof_test as gof_test
    from steinscope.results import TestResult as TestResult
    from steinscope.stein import stein_values as stein_values
    from steinscope.training import TrainResult as TrainResult
    from steinscope.training import train as train

# Names are loaded on first use, so that `steinscope --help` does not wait for torch.
_HOMES = {
    "Estimate": "estimation",
    "InputError": "errors",
    "NonFiniteError": "errors",
    "Ranking": "comparison",
    "TestResult": "results",
    "TrainResult": "training",
    "compare": "comparison",
    "discrepancy": "estimation",
    "fit_critic": "fitting",
    "from_energy": "densities",
    "from_log_prob": "densities",
    "from_score": "densities",
    "gof_test": "gof",
    "stein_values": "stein",
    "train": "training",
}

__version__ = "0.1.0"
__all__ = [
    "Estimate",
    "InputError",
    "NonFiniteError",
    "Ranking",
    "TestResult",
    "TrainResult",
    "__version__",
    "compare",
    "discrepancy",
    "fit_critic",
    "from_energy",
    "from_log_prob",
    "from_score",
    "gof_test",
    "stein_values",
    "train",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        value = getattr(import_module(f"steinscope.{_HOMES[name]}"), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'steinscope' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
