from .arrays import Draws as Draws
from .arrays import from_arrays as from_arrays
from .blackjax import from_blackjax as from_blackjax
from .numpyro import from_numpyro as from_numpyro
from .posteriors import from_posterior as from_posterior
from .pymc import from_pymc as from_pymc
from .stan import from_stan as from_stan
