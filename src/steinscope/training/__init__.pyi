from .directory import Run as Run
from .directory import load_run as load_run
from .directory import train_run as train_run
from .driver import train as train
from .loop import TrainState as TrainState
from .results import TrainHistory as TrainHistory
from .results import TrainResult as TrainResult
