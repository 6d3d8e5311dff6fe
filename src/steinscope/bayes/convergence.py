"""Whether chains agree with each other: the rank-normalised r̂ and the effective sample sizes of Vehtari et al. (2021).

They look at draws alone. Chains that agree on a wrong density look well to them.
"""

from __future__ import annotations

import math

import numpy as np
import torch

__all__ = ["bulk_ess", "rhat", "tail_ess"]


def rhat(x: np.ndarray) -> float:
    """The rank-normalised split r̂ of one quantity, the larger one of centre and spread; 1 where chains agree.

    Arguments:
        x: Its draws, of shape (chains, draws), at least four of each chain.
    """
    halves = _split(x)
    folded = np.abs(halves - np.median(halves))
    return max(_plain_rhat(_normal_scores(halves)), _plain_rhat(_normal_scores(folded)))


def bulk_ess(x: np.ndarray) -> float:
    """How many independent draws the chains are worth for the centre of a quantity.

    Arguments:
        x: Its draws, of shape (chains, draws), at least four of each chain.
    """
    return _effective(_normal_scores(_split(x)))


def tail_ess(x: np.ndarray) -> float:
    """How many independent draws the chains are worth for the quantiles 5% and 95% of a quantity, the smaller number.

    Arguments:
        x: Its draws, of shape (chains, draws), at least four of each chain.
    """
    return min(_effective(_split((x <= np.quantile(x, level)).astype(np.float64))) for level in (0.05, 0.95))


def _split(x: np.ndarray) -> np.ndarray:
    """The two halves of each chain, as chains."""
    half = x.shape[1] // 2
    return np.concatenate([x[:, :half], x[:, -half:]])


def _normal_scores(x: np.ndarray) -> np.ndarray:
    """Normal quantiles of the ranks among all draws; draws that are equal share their mean rank."""
    _, place, count = np.unique(x, return_inverse=True, return_counts=True)
    rank = (np.cumsum(count) - (count - 1) / 2)[place.reshape(x.shape)]
    return torch.special.ndtri(torch.from_numpy((rank - 0.375) / (x.size + 0.25))).numpy()


def _plain_rhat(x: np.ndarray) -> float:
    within, between = x.var(1, ddof=1).mean(), x.mean(1).var(ddof=1)
    if within == 0:
        return 1.0 if between == 0 else math.inf
    return math.sqrt((x.shape[1] - 1) / x.shape[1] + between / within)


def _effective(x: np.ndarray) -> float:
    """The effective sample size of a mean, by Geyer's initial monotone sequence of autocorrelations."""
    chains, n = x.shape
    if np.ptp(x) == 0:
        return float(x.size)
    centred = x - x.mean(1, keepdims=True)
    spectrum = np.abs(np.fft.rfft(centred, 2 * n)) ** 2
    autocovariance = np.fft.irfft(spectrum, 2 * n)[:, :n].mean(0) / n
    within = autocovariance[0] * n / (n - 1)
    total = autocovariance[0] + (x.mean(1).var(ddof=1) if chains > 1 else 0.0)
    correlation = 1 - (within - autocovariance) / total
    correlation[0] = 1.0
    # Sums of two neighbours are positive and decrease, in theory; they count up to the first that is not positive.
    sums = correlation[: n - n % 2].reshape(-1, 2).sum(1)
    most = max(0, (n - 3) // 2)
    negative = np.flatnonzero(sums[:most] <= 0)
    last = int(negative[0]) if len(negative) else most
    time = -1 + 2 * np.minimum.accumulate(sums[:last]).sum() + max(0.0, float(correlation[2 * last]))
    return x.size / max(time, 1 / math.log10(x.size))
