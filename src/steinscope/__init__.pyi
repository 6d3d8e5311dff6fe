from .chains import thin as thin
from .comparison import Ranking as Ranking
from .comparison import compare as compare
from .critics.fitting import fit_critic as fit_critic
from .densities import from_energy as from_energy
from .densities import from_log_prob as from_log_prob
from .densities import from_score as from_score
from .errors import InputError as InputError
from .errors import NonFiniteError as NonFiniteError
from .estimation import Estimate as Estimate
from .estimation import discrepancy as discrepancy
from .gof import gof_test as gof_test
from .modes import ModeWeights as ModeWeights
from .modes import mode_weights as mode_weights
from .results import TestResult as TestResult
from .settings import FitSettings as FitSettings
from .settings import TrainSettings as TrainSettings
from .stein import stein_values as stein_values
from .streams import SequentialTest as SequentialTest
from .training import TrainResult as TrainResult
from .training import train as train

__version__: str
