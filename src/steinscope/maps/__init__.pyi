from .features import Affine as Affine
from .features import AnyFeatures as AnyFeatures
from .features import FeatureMap as FeatureMap
from .features import RandomCosines as RandomCosines
