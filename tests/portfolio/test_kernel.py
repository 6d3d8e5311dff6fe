import torch

from steinscope.kernels.stein_kernel import Sample, stein_kernel
from steinscope.maps.radial import median_distance, radial
from steinscope.portfolio import KernelLearner, LandmarkLearner

from helpers import learner_data, taught


def test_the_witness_is_the_mean_of_the_stein_kernel():
    learner, (x, score) = taught(KernelLearner(0.7)), learner_data()
    test_x, test_score = learner_data(9, seed=1)
    phi = radial("gaussian", 0.7 * median_distance(x))
    expected = stein_kernel(phi, Sample(test_x, test_score), Sample(x, score)).mean(1)
    torch.testing.assert_close(learner.values(test_x, test_score), expected)


def test_only_the_first_points_are_kept():
    learner = KernelLearner()
    learner.most_points = 50
    x, score = learner_data()
    learner.begin(x, score)
    for start in range(0, 60, 20):
        learner.observe(x[start : start + 20], score[start : start + 20])
    learner.refit()
    assert torch.equal(learner.x, x[:50]) and torch.equal(learner.score, score[:50])


def test_the_solution_on_landmarks_maximises_the_penalised_mean():
    """No other weights on the same landmarks are better, on the points themselves and without a ridge."""
    learner, (x, score) = taught(LandmarkLearner(1.0)), learner_data()
    learner.landmarks = learner.landmarks[:8]
    for _ in learner._solve(0.5, (1e-12,)):
        pass

    def penalised(weights):
        learner.weights = weights
        f, divergence = learner.value_and_divergence(x)
        return float(((score * f).sum(1) + divergence - 0.5 * f.square().sum(1)).mean())

    best = learner.weights.clone()
    largest = penalised(best)
    noise = torch.Generator().manual_seed(0)
    for _ in range(20):
        assert penalised(best + 0.01 * torch.randn(best.shape, generator=noise, dtype=best.dtype)) < largest
