"""Train an energy-based model by the learned Stein discrepancy, sample from it, and test what it has learned."""

# %%
import math

import torch

from steinscope import gof_test, mode_weights, train
from steinscope.data import draw_toy
from steinscope.models import EBM
from steinscope.samplers import draw_samples

STEPS = 600

# %% [markdown]
# Points around eight centres on a circle. Some train the model, others are kept to test it.

# %%
x, held_out = draw_toy("8gaussians", 4000, seed=0).split([3000, 1000])

# %% [markdown]
# The energy is a network, and its normalising constant is unknown. A second network, the critic, is trained to see
# where model and points differ. Points that jump from one mode to another tell the model how much mass each mode has.

# %%
model = EBM.perceptron(2, width=64, mean=x.mean(0), std=x.std(0) + 1)
result = train(model, x, steps=STEPS, batch_size=256, average=0.99)
print(f"{result}.")

# %% [markdown]
# The model has no exact samples. Chains start at its Gaussian and take steps of MALA, whose size pilot steps find.

# %%
trained = result.averaged
samples, how = draw_samples(trained, 1000, steps=300, seed=0)
print(f"1000 samples by {how}.")


def shares(points):
    """The share of the points that is nearest to each of the eight centres."""
    mode = (torch.atan2(points[:, 1], points[:, 0]) / (math.pi / 4)).round().long() % 8
    return torch.bincount(mode, minlength=8) / len(points)


for name, points in {"data": held_out, "samples": torch.from_numpy(samples)}.items():
    print(f"The share of each mode, {name}:", " ".join(f"{share:.2f}" for share in shares(points)))

# %% [markdown]
# Does the model fit points that it has not seen? A Gaussian is tested beside it. The critic `modes` looks at how the
# mass is divided between the modes, and comes below; the others look at the shape.

# %%
gaussian = torch.distributions.MultivariateNormal(x.mean(0), torch.cov(x.T))
for name, density in {"the trained model": trained, "a Gaussian": gaussian}.items():
    test = gof_test(held_out, density)
    strongest = max((critic for critic in test.critics if critic.name != "modes"), key=lambda critic: critic.z)
    print(
        f"On held-out points {name} is {'rejected' if test.rejected else 'not rejected'}: "
        f"p = {test.pvalue:.2g}, largest z-score of its shape {strongest.z:.1f} by the critic {strongest.name}."
    )

# %% [markdown]
# Scores know next to nothing of how the mass is divided between modes that lie apart. The log-density knows.

# %%
print(mode_weights(held_out, trained))
