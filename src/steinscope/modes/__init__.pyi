from .moves import Moves as Moves
from .search import Modes as Modes
from .search import find_modes as find_modes
from .surface import Surface as Surface
from .weights import ModeWeights as ModeWeights
from .weights import mode_weights as mode_weights
