import pytest
import torch

from steinscope import InputError
from steinscope.critics import MLP, Preconditioned
from steinscope.models import Gaussian
from steinscope.objectives import LearnedStein

from helpers import generator


def begun(**options):
    objective = LearnedStein(MLP(2, width=8), **options)
    x = torch.tensor([10.0, -5.0]) + torch.randn(5000, 2, generator=generator()) @ torch.tensor(
        [[3.0, 0.0], [2.0, 1.0]]
    )
    objective.begin(Gaussian([0.0, 0.0]), x, generator(1))
    return objective.auxiliary, x


def test_full_whitening_makes_the_covariance_the_identity():
    critic, x = begun(shrinkage=0.0)
    assert isinstance(critic, Preconditioned)
    torch.testing.assert_close(torch.cov(critic.whiten(x, x)[0].T), torch.eye(2), atol=1e-4, rtol=0)


def test_full_shrinkage_centres_and_scales_by_one_number():
    critic, x = begun(shrinkage=1.0)
    scale = torch.cov(x.T).diagonal().mean().sqrt()
    torch.testing.assert_close(critic.whiten(x, x)[0], (x - x.mean(0)) / scale, atol=1e-4, rtol=0)


def test_the_model_needs_the_score_along_the_critic_alone():
    """A model with `score_along` is not asked for its score, and its loss is the same."""

    class Along(Gaussian):
        def score(self, x):
            raise AssertionError

        def score_along(self, x, v):
            return (super().score(x) * v).sum(1)

    objective = LearnedStein(MLP(2, width=8), precondition=False)
    x = torch.randn(50, 2, generator=generator())
    objective.begin(None, x, generator(1))
    plain, along = (objective.model_loss(model, x, generator(2)) for model in (Gaussian([0.0, 0.0]), Along([0.0, 0.0])))
    torch.testing.assert_close(plain, along)


def test_bad_settings():
    with pytest.raises(InputError, match="shrinkage: expected a number from 0 to 1, got 2"):
        LearnedStein(shrinkage=2.0)
    with pytest.raises(InputError, match="l2: expected a positive number, got 0"):
        LearnedStein(l2=0.0)
    with pytest.raises(InputError, match="critic_steps: expected a whole number from 1 on, got 0"):
        LearnedStein(critic_steps=0)
