import inspect

import pytest
import torch

from steinscope import InputError, train
from steinscope.models import Gaussian
from steinscope.report import report_training
from steinscope.report.charts import number

from helpers import report_points, text_of


@pytest.mark.parametrize("dim", [1, 2, 5])
def test_a_training_run_has_curves_and_what_was_learned(dim):
    x = report_points(300, dim)
    model = Gaussian(torch.zeros(dim))
    result = train(model, x, steps=30, log_every=10)
    html = report_training(result, data="moons", points=x.numpy(), samples=model.sample(50).numpy())
    text = text_of(html)
    assert "Gaussian, 30 steps of LearnedStein" in text and "trained on moons by lsd" in text
    assert html.count("<svg") == (7 if dim == 2 else 6) and ("data:image/png" in html) == (dim == 2)
    assert number(float(x[:, 0].double().numpy().std())) in text
    assert "auxiliary_lr" in text and f"model of step {result.best_step} best" in text
    assert "Score matching at held-out points" in text and "What the critic finds at held-out points" in text


def test_a_run_of_one_log_point_has_dots_and_settings_in_words():
    result = train(Gaussian(torch.zeros(5)), report_points(300, 5), steps=10, lr_decay=True, noise=0.3)
    html = report_training(result, points=report_points(300, 5).numpy(), samples=report_points(50, 5).numpy())
    assert html.count('<circle class="dot"') == 5 and '<path class="curve"' not in html
    text = text_of(html)
    assert "0.3, to zero over 80% of 10 steps" in text and "to zero over 10 steps" in text
    assert "outruns its critic" in text and "in the two coordinates that spread most" in text


@pytest.mark.parametrize("noise, found", [(0, True), (None, False)])
def test_a_run_without_noise(noise, found):
    result = train(Gaussian(torch.zeros(5)), report_points(300, 5), steps=10, noise=noise)
    assert ("<dt>noise</dt><dd>0</dd>" in report_training(result)) == found


@pytest.mark.parametrize("dim", [2, 3])
def test_coordinates_are_called_by_their_names(dim):
    x, names = report_points(300, dim), ["age", "income", "height"][:dim]
    result = train(Gaussian(torch.zeros(dim)), x, steps=2, objective="score-matching")
    html = report_training(result, points=x.numpy(), samples=x[:50].numpy(), names=names)
    # In the table, and at the axes of the samples and of the density, which is drawn in the plane.
    assert "x[0]" not in html and all(text_of(html).count(name) >= 2 for name in names[:2])
    with pytest.raises(InputError, match="names: expected one for each of"):
        report_training(result, points=x.numpy(), names=["age"])


def test_a_run_without_a_critic_or_points():
    result = train(Gaussian(torch.zeros(2)), report_points(300, 2), objective="score-matching", steps=10)
    html = report_training(result)
    assert html.count("<svg") == 2 and "Neither the density nor samples" in html


@pytest.mark.parametrize(
    "given, message",
    [
        ({"data": torch.zeros(3, 2)}, "data: expected a text, got tensor"),
        ({"points": -1}, "points: expected rows of points, got a single number"),
        ({"points": torch.zeros(3, 2), "samples": torch.zeros(3, 1)}, "samples: expected 2 coordinates, as points"),
    ],
)
def test_bad_input(given, message):
    result = train(Gaussian(torch.zeros(2)), report_points(300, 2), objective="score-matching", steps=2)
    with pytest.raises(InputError, match=message):
        inspect.unwrap(report_training)(result, **given)
