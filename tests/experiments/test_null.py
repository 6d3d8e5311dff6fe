import numpy as np
import pytest
from scipy import stats

from steinscope.experiments.null import kolmogorov_smirnov


@pytest.mark.parametrize("power", [1.0, 1.3, 2.0])
def test_the_test_of_uniformity_is_that_of_scipy(power):
    """Stephens' correction of the asymptotic series is within a hundredth of the exact p-value at 100 points."""
    uniforms = np.random.default_rng(1).random(100) ** power
    assert kolmogorov_smirnov(uniforms) == pytest.approx(stats.kstest(uniforms, "uniform").pvalue, abs=0.01)
