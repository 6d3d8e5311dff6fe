from .ebm import EBM as EBM
from .ebm import Perceptron as Perceptron
from .gaussian import Gaussian as Gaussian
from .glow import Glow as Glow
from .ica import ICA as ICA
from .ica import UnnormalisedICA as UnnormalisedICA
from .rbm import RBM as RBM
