"""What NumPyro's draws are checked by, without NumPyro itself."""

from types import SimpleNamespace

import numpy as np
import pytest

from steinscope import InputError
from steinscope.bayes.numpyro import _check_last_state


def last_state(x, log_prob):
    """What a sampler holds after the last draw of one coordinate."""
    return SimpleNamespace(last_state=SimpleNamespace(z={"mu": x[:, -1, 0]}, potential_energy=-log_prob))


def test_the_last_state_is_known_to_as_many_digits_as_single_precision_has():
    """Of a million observations the log-density is about a million, of which single precision knows a sixteenth."""
    x = np.random.default_rng(0).normal(size=(4, 10, 1))
    values = np.float32(-1e6) + np.zeros((4, 10), dtype=np.float32)
    _check_last_state(last_state(x, values[:, -1] + np.float32(0.0625)), ["mu"], x, values)
    with pytest.raises(InputError, match="differs from the sampler's"):
        _check_last_state(last_state(x, values[:, -1] + 100.0), ["mu"], x, values)
    with pytest.raises(InputError, match="opposite sign"):
        _check_last_state(last_state(x, -values[:, -1]), ["mu"], x, values)
