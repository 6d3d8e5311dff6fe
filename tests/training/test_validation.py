"""Points that are held out of training: what they say, what they choose, and when they stop a run."""

import functools
import inspect
import math

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

from steinscope import InputError, train
from steinscope.models import Gaussian
from steinscope.objectives import LearnedStein, score_matching
from steinscope.training.batches import make_batches

from helpers import generator


class Network(nn.Module):
    """A network that can learn few points by heart."""

    def __init__(self, dim=2, width=64, activation=nn.SiLU):
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(0)
            self.layers = nn.Sequential(
                nn.Linear(dim, width), activation(), nn.Linear(width, width), activation(), nn.Linear(width, 1)
            )

    def energy(self, x):
        return 0.5 * x.square().sum(1) + self.layers(x)[:, 0]


def points(n, seed=0, dim=2):
    return torch.randn(n, dim, generator=generator(seed))


def test_held_out_points_are_in_no_batch():
    x = points(200)
    batches = make_batches(x, 30, seed=1, held_out=0.1)
    held_out = {tuple(row) for row in batches.held_out().tolist()}
    seen = {tuple(row) for number in range(40) for row in batches.batch(number).tolist()}
    seen |= {tuple(row) for row in batches.look(1000).tolist()}
    assert len(held_out) == 20 and len(seen) == 180 and not held_out & seen
    assert {tuple(row) for row in make_batches(x, 30, seed=2, held_out=0.1).held_out().tolist()} != held_out


@pytest.mark.parametrize(
    "source, share, count",
    [
        (points(39), None, None),
        (points(39), 0.1, 4),
        (TensorDataset(points(100)), 0.1, 10),
        (points(20_000), 0.1, 1000),
        (points(100), None, 20),
        (points(700), None, 100),
        (points(1400), None, 140),
        (points(20_000), None, 1000),
        (points(500), 0.0, None),
    ],
)
def test_how_many_points_are_held_out(source, share, count):
    found = make_batches(source, 10, seed=0, held_out=share).held_out()
    assert (found if count is None else len(found)) == count


@pytest.mark.parametrize(
    "source, share, problem",
    [
        (points(30), 0.1, "expected at least 4 held-out points, or 0 for none, got 0.1 of 30 points"),
        (DataLoader(TensorDataset(points(300))), 0.1, "expected points, because no share of a DataLoader can be held"),
    ],
)
def test_a_share_that_cannot_be_held_out_is_refused(source, share, problem):
    with pytest.raises(InputError, match=f"validation: {problem}"):
        train(Gaussian([0.0, 0.0]), source, steps=1, validation=share)


def test_a_batch_is_at_most_all_points():
    batches = make_batches(points(50), 128, seed=0, held_out=0.1)
    assert len(batches.batch(0)) == 45


def test_the_model_that_was_best_at_held_out_points_is_returned():
    """Sixty points in four dimensions are learned by heart, and score matching at others gets worse and worse."""
    x, fresh = points(60, dim=4), points(2000, seed=1, dim=4)
    states = {}

    def keep(step, model, row):
        states[step] = {name: value.clone() for name, value in model.state_dict().items()}

    result = train(Network(4), x, validation=points(300, 2, 4), steps=400, log_every=20, callbacks=[keep], seed=1)
    history = result.history
    best = int(history.step[np.argmin(history.held_out)])
    assert result.best_step == best < 200
    for name, value in result.model.state_dict().items():
        assert torch.equal(value, states[best][name])
    last = Network(4)
    last.load_state_dict(states[400])
    assert score_matching(fresh, result.model).value < score_matching(fresh, last).value
    assert any(f"was best at step {best}, whose model is returned" in note for note in result.notes)
    assert f"at step {best}" in str(result)


def test_what_is_logged_is_score_matching_at_those_points():
    x = points(400)
    model, rows = Gaussian([0.5, 0.0]), []
    result = train(
        model,
        x,
        objective=LearnedStein(jumps=False),
        validation=points(300, 7),
        steps=10,
        log_every=10,
        callbacks=[lambda *row: rows.append(row[2])],
    )
    # The score of a Gaussian is linear, and its trace along signs is exact where the covariance is diagonal. Jumps
    # would correlate the coordinates a little.
    exact = score_matching(points(300, 7), result.model)
    assert abs(rows[0]["held_out"] - exact.value) < 1e-3
    assert abs(rows[0]["held_out_error"] - exact.stderr) < 1e-3
    assert math.isfinite(rows[0]["discrepancy"]) and rows[0]["discrepancy_error"] > 0


def test_the_average_is_chosen_where_there_is_one():
    x, states = points(60, dim=4), {}
    keep = lambda step, model, row: states.update({step: {k: v.clone() for k, v in model.state_dict().items()}})  # noqa: E731
    result = train(Network(4), x, steps=200, log_every=20, average=0.9, callbacks=[keep], lr=0.01)
    chosen = states[result.best_step]
    assert all(torch.equal(value, chosen[name]) for name, value in result.averaged.state_dict().items())
    assert not torch.equal(next(result.model.parameters()), next(result.averaged.parameters()))


@pytest.mark.parametrize("steps", [40, 45])
def test_a_stopped_run_goes_on_to_the_same_best_model(steps, tmp_path):
    x = points(80, dim=3)

    def run(path, **options):
        options = {"steps": 120, "log_every": 20, "checkpoint_every": steps, "lr": 0.02, **options}
        return train(Network(3), x, checkpoint=tmp_path / path, **options)

    class Killed(Exception):
        pass

    def kill(step, model, row):
        if step > steps:
            raise Killed

    whole = run("whole")
    with pytest.raises(Killed):
        run("parts", callbacks=[kill])
    rest = run("parts")
    assert rest.best_step == whole.best_step
    for one, other in zip(rest.model.parameters(), whole.model.parameters(), strict=True):
        assert torch.equal(one, other)
    # A run that has ended gives the same again.
    again = run("parts")
    assert all(torch.equal(*pair) for pair in zip(again.model.parameters(), whole.model.parameters(), strict=True))


def test_without_a_number_of_steps_held_out_points_stop_the_run():
    result = train(Gaussian([3.0, 3.0]), points(500), steps=None, log_every=5, lr=0.05)
    assert 100 < result.state.step < 3000 and result.best_step == result.state.step - 100
    assert result.notes[0] == f"The run was stopped by held-out points at step {result.state.step}."
    assert float(result.model.mean.detach().abs().max()) < 0.2


@pytest.mark.parametrize(
    "options, message",
    [
        ({"objective": "likelihood"}, "steps: expected a number of them: no points are held out"),
        ({"validation": 0}, "steps: expected a number of them: no points are held out"),
        ({"noise": 1.0}, "steps: expected a number of them, over which noise can fall"),
        ({"lr_decay": True}, "steps: expected a number of them, over which rates can fall"),
        ({"validation": 2.0}, "validation: expected a number from 0 to below 1, got 2.0"),
        ({"validation": torch.zeros(9, 3)}, r"validation: expected at least 4 points of shape \(2,\), .* \(9, 3\)"),
    ],
)
def test_bad_validation(options, message):
    with pytest.raises(InputError, match=message):
        train(Gaussian([3.0, 3.0]), points(500), steps=None, **options)


def test_a_run_that_held_out_points_have_stopped_stays_so(tmp_path):
    def run():
        return train(Gaussian([3.0, 3.0]), points(500), steps=None, log_every=5, lr=0.05, checkpoint=tmp_path)

    first, again = run(), run()
    assert again.state.step == first.state.step and again.best_step == first.best_step
    assert again.notes == first.notes
    assert all(torch.equal(*pair) for pair in zip(again.model.parameters(), first.model.parameters(), strict=True))


def test_a_run_that_held_out_points_have_stopped_may_go_on_from_its_state():
    x, options = points(500), {"steps": None, "log_every": 5}
    first = train(Gaussian([3.0, 3.0]), x, lr=0.05, **options)
    more = train(Gaussian([3.0, 3.0]), x, lr=1e-4, start=first.state, **options)
    assert more.state.step >= first.state.step + 100


class Normalised(Network):
    """A network whose running means take in all points that it sees in training."""

    def energy(self, x):
        self.counts.append(len(x) if self.training else 0)
        return super().energy(x)


def test_held_out_points_are_seen_by_a_model_in_evaluation_mode():
    model = Normalised()
    model.counts = []
    result = train(model, points(200), steps=30, batch_size=37, log_every=10, validation=points(50, seed=1))
    assert result.best_step is not None and model.training
    assert set(model.counts) == {0, 37, 2 * 37}  # jumps and where they begin are one batch


def test_a_run_is_not_resumed_with_other_held_out_points(tmp_path):
    options = {"steps": 10, "checkpoint": tmp_path}
    train(Gaussian([3.0, 3.0]), points(500), validation=points(50, 1), **options)
    with pytest.raises(InputError, match="validation: the run to resume was made with '50 points with digest .*', got"):
        train(Gaussian([3.0, 3.0]), points(500), validation=points(50, 2), **options)


def test_a_callback_can_stop_a_run_and_the_result_is_kept(tmp_path):
    seen = []

    def stop(step, model, row):
        seen.append(step)
        return step >= 30

    result = train(Gaussian([3.0, 3.0]), points(500), steps=200, log_every=10, callbacks=[stop], checkpoint=tmp_path)
    assert seen == [10, 20, 30] and result.state.step == 30
    assert result.notes[0] == "The run was stopped by a callback at step 30."
    assert (tmp_path / "step-000000030.json").exists()


def test_networks_of_relus_cannot_be_judged():
    result = train(Network(activation=nn.ReLU), points(300), steps=20, log_every=10)
    assert np.isfinite(result.history.held_out).all()  # Its Gaussian has a derivative.

    class Bare(Network):
        def energy(self, x):
            return self.layers(x)[:, 0]

    result = train(Bare(activation=nn.ReLU), points(300), steps=20, log_every=10)
    assert result.best_step is None and np.isnan(result.history.held_out).all()
    assert result.notes[0].startswith("The model's score has no derivative")


def test_a_module_with_an_energy_alone_is_a_model():
    class Shifted(nn.Module):
        def __init__(self):
            super().__init__()
            self.mean = nn.Parameter(torch.zeros(2))

        def energy(self, x):
            return 0.5 * (x - self.mean).square().sum(1)

    result = train(Shifted(), 1.0 + points(500), steps=200, lr=0.05)
    assert float((result.model.mean - 1.0).detach().abs().max()) < 0.15


def test_optimisers_and_schedules_of_ones_own(tmp_path):
    x, options = 1.0 + points(500), {"steps": 60, "log_every": 20}
    sgd = functools.partial(torch.optim.SGD, lr=0.1)
    halved = functools.partial(torch.optim.lr_scheduler.StepLR, step_size=20, gamma=0.5)
    whole = train(Gaussian([0.0, 0.0]), x, optimiser=sgd, scheduler=halved, **options)
    assert whole.state.optimisers[0]["param_groups"][0]["lr"] == pytest.approx(0.1 / 8)
    assert whole.state.settings["optimiser"] == "SGD" and whole.state.settings["scheduler"] == "StepLR"

    def kill(step, model, row):
        if step == 40:
            raise KeyboardInterrupt

    run = functools.partial(
        train, x=x, optimiser=sgd, scheduler=halved, checkpoint=tmp_path, checkpoint_every=30, **options
    )
    with pytest.raises(KeyboardInterrupt):
        run(Gaussian([0.0, 0.0]), callbacks=[kill])
    rest = run(Gaussian([0.0, 0.0]))
    assert all(torch.equal(*pair) for pair in zip(rest.model.parameters(), whole.model.parameters(), strict=True))
    with pytest.raises(InputError, match="optimiser: the run to resume was made with 'SGD', got None"):
        train(Gaussian([0.0, 0.0]), x, checkpoint=tmp_path, **options)


def test_what_optimisers_and_schedules_cannot_be():
    x, model = points(100), Gaussian([0.0, 0.0])
    for options, message in (
        ({"optimiser": torch.optim.SGD, "lr": 0.1}, "lr: it is that of the optimiser, which was given, too"),
        ({"optimiser": 3}, "optimiser: expected an optimiser or a function of parameters, got 3"),
        ({"optimiser": lambda parameters: 3}, "optimiser: expected a torch optimiser, got int"),
        (
            {"optimiser": torch.optim.SGD([torch.zeros(1)], 0.1)},
            "optimiser: it was made for other parameters than those",
        ),
        ({"scheduler": torch.optim.lr_scheduler.StepLR}, "scheduler: it cannot be made: .*step_size"),
        ({"scheduler": lambda optimiser: 3}, "scheduler: expected a schedule that counts steps, got int"),
        (
            {"scheduler": lambda optimiser: 3, "lr_decay": True},
            "lr_decay: a scheduler was given, too; take one of them",
        ),
    ):
        with pytest.raises(InputError, match=message):
            # The types are checked before, where they are checked at all.
            inspect.unwrap(train)(model, x, steps=2, **options)


def test_gradients_are_clipped():
    x, start = 100.0 + points(200), torch.zeros(2)
    sgd = functools.partial(torch.optim.SGD, lr=1.0)
    model = Gaussian(start.clone())
    result = train(model, x, steps=1, optimiser=sgd, clip=0.01, validation=0, lr_decay=False)
    moved = torch.cat(
        [(new - old).flatten() for new, old in zip(model.parameters(), Gaussian(start).parameters(), strict=True)]
    )
    assert float(moved.detach().norm()) == pytest.approx(0.01, rel=1e-3)
    assert result.history.gradient_norm[0] > 1


def test_a_run_may_go_on_with_other_rates_noise_and_steps():
    x = 1.0 + points(500)
    first = train(Gaussian([0.0, 0.0]), x, steps=20, lr=0.05)
    more = train(Gaussian([0.0, 0.0]), x, steps=60, lr=1e-3, noise=0.1, lr_decay=False, start=first.state)
    assert more.state.step == 60 and more.state.optimisers[0]["param_groups"][0]["lr"] == 1e-3
    with pytest.raises(InputError, match="objective: the run to resume was made with 'lsd', got 'score-matching'"):
        train(Gaussian([0.0, 0.0]), x, steps=60, objective="score-matching", start=first.state)


def test_a_run_that_goes_on_with_other_points_forgets_what_was_best_on_the_old_ones():
    """Score matching at points that lie closely together is far lower than any model can get at others."""
    near, far = 0.2 * points(500), 3.0 + points(500, seed=1)
    model = Gaussian(torch.zeros(2), std=0.2 * torch.ones(2))
    options = {"objective": "score-matching", "lr": 0.05, "log_every": 10}
    first = train(model, near, steps=20, validation=0.2 * points(100, seed=2), **options)
    more = train(model, far, steps=200, validation=3.0 + points(100, seed=3), start=first.state, **options)
    assert first.best_step <= 20 < more.best_step
    assert float((model.mean.detach() - 3.0).abs().max()) < 0.5


class Stream(IterableDataset):
    def __iter__(self):
        draws = generator(5)
        for _ in range(1000):
            yield 1.0 + torch.randn(2, generator=draws)


@pytest.mark.parametrize(
    "make",
    [Stream, lambda: DataLoader(TensorDataset(1.0 + points(300), torch.zeros(300)), batch_size=50, shuffle=True)],
)
def test_loaders_and_streams_are_points(make, tmp_path):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        result = train(Gaussian([0.0, 0.0]), make(), steps=200, lr=0.02, batch_size=50, validation=1.0 + points(100, 9))
        assert float((result.model.mean - 1.0).detach().abs().max()) < 0.25 and result.best_step is not None
        with pytest.warns(UserWarning, match="x is a DataLoader: a run that is resumed goes on with other batches"):
            train(Gaussian([0.0, 0.0]), make(), steps=2, checkpoint=tmp_path)


def test_the_watch_of_a_critic_of_ones_own_is_its_penalised_discrepancy():
    from steinscope.critics import MLP

    result = train(
        Gaussian([2.0, 0.0]),
        points(500),
        objective=LearnedStein(MLP(2, width=32)),
        validation=0.2,
        steps=60,
        log_every=20,
    )
    assert (result.history.discrepancy[-1] > 0.2) and np.isfinite(result.history.held_out).all()
