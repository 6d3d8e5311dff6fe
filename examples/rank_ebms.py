"""Rank three energy-based models of the same points, each trained in another way."""

# %%
import torch

from steinscope import compare, gof_test, train
from steinscope.critics import MLP
from steinscope.data import moons, moons_density
from steinscope.models import EBM
from steinscope.objectives import LearnedStein

STEPS = 400

# %% [markdown]
# Two moons. The models are not normalised, so their likelihoods cannot be compared.

# %%
x, held_out = moons(3500, seed=0).split([2500, 1000])
objectives = {
    "learned Stein": LearnedStein(MLP(2, width=64, skip=True)),
    "score matching": "score-matching",
    "noise contrast": "nce",
}

# %%
models = {}
for name, objective in objectives.items():
    model = EBM.perceptron(2, width=64, mean=x.mean(0), std=x.std(0) + 1)
    result = train(model, x, objective=objective, steps=STEPS, batch_size=256, lr=5e-3, lr_decay=True, average=0.99)
    models[name] = result.averaged
    print(f"Trained by {name}.")

# %% [markdown]
# All critics hold out the same points, so that the difference of two models is a mean of paired differences.

# %%
ranking = compare(models, held_out)
print(ranking)
best, second = ranking.names[:2]
difference = ranking.difference(second, best)
certain = "beyond doubt" if ranking.best_is_better()[0] > 0.95 else "but not beyond doubt"
print(f"{best} comes first, {certain}: {second} is worse by {difference.value:.2f} ± {difference.stderr:.2f}.")

# %% [markdown]
# A ranking has a best model even where none of them fits, so each is tested too.

# %%
for name in ranking.names:
    test = gof_test(held_out, models[name], alpha=0.05 / len(models))
    print(f"{name}: {'rejected' if test.rejected else 'nothing found against it'}, p = {test.pvalue:.2g}.")

# %% [markdown]
# The true density of the moons is known, so that the ranking can be checked by the mean squared distance of the scores.

# %%
points = held_out.clone().requires_grad_()
(true_score,) = torch.autograd.grad(moons_density().log_prob(points).sum(), points)
with torch.no_grad():
    truth = {name: float((models[name].score(held_out) - true_score).square().sum(1).mean()) for name in ranking.names}
print("The true Fisher divergences:", ", ".join(f"{name} {value:.2f}" for name, value in truth.items()) + ".")
