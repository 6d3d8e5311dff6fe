"""Log-posteriors in unconstrained coordinates, written by hand, which adapters are compared with."""

import numpy as np
import torch
from torch.distributions import Bernoulli, Normal

from steinscope import from_log_prob

SCHOOLS = ["Choate", "Deerfield", "Andover", "Exeter", "Hotchkiss", "Lawrenceville", "St. Paul's", "Mt. Hermon"]
EFFECTS = np.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0])
ERRORS = np.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0])
_RNG = np.random.default_rng(0)
FEATURES = _RNG.normal(size=(100, 3))
LABELS = (_RNG.random(100) < 1 / (1 + np.exp(-FEATURES @ [1.0, -1.0, 0.5]))).astype(int)


def _of_effects(theta):
    return Normal(theta, torch.from_numpy(ERRORS)).log_prob(torch.from_numpy(EFFECTS)).sum(1)


def _of_mean_and_scale(x):
    """The priors of the mean and of the scale, whose logarithm is the coordinate: hence the Jacobian."""
    mu, log_tau = x[:, 0], x[:, 1]
    # The density of a half-Cauchy distribution of scale 5; that of torch computes in float32.
    return Normal(0.0, 5.0).log_prob(mu) - torch.log1p((log_tau.exp() / 5) ** 2) + log_tau


def centred(x):
    mu, tau, theta = x[:, :1], x[:, 1:2].exp(), x[:, 2:]
    return _of_mean_and_scale(x) + Normal(mu, tau).log_prob(theta).sum(1) + _of_effects(theta)


def non_centred(x):
    mu, tau, z = x[:, :1], x[:, 1:2].exp(), x[:, 2:]
    return _of_mean_and_scale(x) + Normal(0.0, 1.0).log_prob(z).sum(1) + _of_effects(mu + tau * z)


def regression(x):
    logits = x @ torch.from_numpy(FEATURES).T
    return Normal(0.0, 2.0).log_prob(x).sum(1) + Bernoulli(logits=logits).log_prob(
        torch.from_numpy(LABELS).double()
    ).sum(1)


def funnel(x):
    v, rest = x[:, :1], x[:, 1:]
    return (Normal(0.0, 3.0).log_prob(v) + Normal(0.0, (v / 2).exp()).log_prob(rest).sum(1, keepdim=True))[:, 0]


LOG_PROBS = {"centred": centred, "non-centred": non_centred, "regression": regression, "funnel": funnel}
NAMES = {
    "centred": ("mu", "log(tau)", *(f"theta[{school}]" for school in SCHOOLS)),
    "non-centred": ("mu", "log(tau)", *(f"z[{school}]" for school in SCHOOLS)),
    "regression": ("w[0]", "w[1]", "w[2]"),
    "funnel": ("v", "x[0]", "x[1]"),
}


def assert_right(draws, name, tolerance):
    """Scores and log-densities, up to a constant, are those that were written by hand."""
    x = torch.from_numpy(draws.to_numpy()).double()
    density = from_log_prob(LOG_PROBS[name])
    score, value = density.score(x).numpy(), density.log_prob(x).numpy()
    assert np.abs(draws.score_rows - score).max() <= tolerance * np.abs(score).max()
    difference = draws.log_prob.reshape(-1) - value
    assert np.ptp(difference) <= tolerance * np.abs(value).max()
