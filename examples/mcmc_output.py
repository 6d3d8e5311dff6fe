"""Test whether draws of a sampler come from a posterior: whole chains, and thinned ones."""

# %%
import torch

from steinscope import from_log_prob, gof_test
from steinscope.samplers import MALA, SGLD, run_chains

# With 200 repetitions this is the table in docs/choices.md.
REPETITIONS = 40
CHAINS, KEPT = 4, 250

# %% [markdown]
# A logistic regression with four coefficients and the prior N(0, 2²). The normalising constant is not needed.

# %%
generator = torch.Generator().manual_seed(0)
features = torch.randn(100, 4, generator=generator)
features[:, 1] = 0.7 * features[:, 0] + 0.7 * features[:, 1]
chances = torch.sigmoid(features @ torch.tensor([1.0, -1.0, 0.5, 0.0]))
labels = (torch.rand(100, generator=generator) < chances).float()


def log_posterior(w):
    """The log-density of each row of coefficients, up to a constant."""
    logits = w @ features.T
    return (labels * logits - torch.nn.functional.softplus(logits)).sum(1) - 0.5 * (w / 2).square().sum(1)


posterior = from_log_prob(log_posterior)

# %% [markdown]
# Many sets of four chains of MALA, which has the right target: what is rejected here is rejected in error.

# %%
start = torch.randn(CHAINS * REPETITIONS, 4, generator=generator)
chains = run_chains(MALA(posterior, 0.105), start, 200 + 20 * KEPT, every=1, burn_in=200, seed=0)
draws = chains.trajectory.reshape(-1, REPETITIONS, CHAINS, 4)
print(f"MALA accepted {chains.acceptance.mean():.0%} of its steps.")

# %%
centred = draws - draws.mean((0, 1, 2))
for every in (1, 2, 5, 10, 20):
    alike = (centred[every:] * centred[:-every]).mean((0, 1, 2)) / centred.var((0, 1, 2))
    kept = draws[::every][:KEPT].transpose(1, 0, 2, 3).reshape(REPETITIONS, -1, 4)
    rejected = [gof_test(x, posterior, critics="closed form", seed=i).rejected for i, x in enumerate(kept)]
    print(
        f"One of every {every} kept: autocorrelation {alike.max():.2f}, "
        f"{sum(rejected)} of {REPETITIONS} right sets of chains rejected."
    )
print("Independent points are what that test is for. Said to be chains, all draws count, and the level holds:")

# %%
whole = draws[: 4 * KEPT].transpose(1, 2, 0, 3)
rejected = [gof_test(x, posterior, chains=True, critics="closed form", seed=i).rejected for i, x in enumerate(whole)]
print(f"{sum(rejected)} of {REPETITIONS} right sets of chains rejected with chains=True.")

# %% [markdown]
# Langevin dynamics without acceptance spreads too much, and longer chains do not help: its target is another one.

# %%
biased = run_chains(SGLD(posterior, 0.2), start[:CHAINS], 200 + 20 * KEPT, every=1, burn_in=200, seed=0)
result = gof_test(biased.trajectory.swapaxes(0, 1), posterior, chains=True)
print(f"SGLD with large steps is {'rejected' if result.rejected else 'not rejected'}:")
print(result)
