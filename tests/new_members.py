"""What a contributor might add: a critic, an objective and a kernel test."""

import math

import torch

from steinscope.objectives import TrainingObjective
from steinscope.portfolio import Learner
from steinscope.results import TestResult
from steinscope.scoring import make_points
from steinscope.support.normal import upper_tail


class TanhLearner(Learner):
    """The critic f(x) = c tanh(x), with c the average of its Stein terms."""

    name = "tanh"

    def begin(self, x, score):
        self.count, self.total = 0, torch.zeros_like(x[0])

    def observe(self, x, score):
        value = torch.tanh(x)
        self.total += (score * value + 1 - value.square()).sum(0)
        self.count += len(x)

    def refit(self):
        self.weights = self.total / self.count

    def field(self, x):
        value = torch.tanh(x)
        return self.weights * value, self.weights * (1 - value.square())


class CappedLikelihood(TrainingObjective):
    """Maximum likelihood in which no point counts more than a hundred nats."""

    def model_loss(self, model, x, generator):
        return -model.log_prob(x).clamp_min(-100.0).mean()


def scale_test(x, model, *, alpha=0.05, seed=0):
    """The mean of s·x + d, which is zero where the model is right, over its standard error; seen from both sides."""
    points, score = (rows.flatten(1).double() for rows in make_points(x, model).take(slice(None)))
    values = (score * points).sum(1) + points.shape[1]
    z = float(values.mean() / values.std()) * math.sqrt(len(values))
    return TestResult(abs(z), 2 * upper_tail(abs(z)), alpha, "Scale test", *points.shape)
