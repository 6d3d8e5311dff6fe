"""The paper's algorithms as one would write them down: the baseline of every ratio."""

import torch
from torch import nn


def network(dim, width=300, dropout=0.0):
    return nn.Sequential(
        nn.Linear(dim, width),
        nn.SiLU(),
        nn.Dropout(dropout),
        nn.Linear(width, width),
        nn.SiLU(),
        nn.Dropout(dropout),
        nn.Linear(width, dim),
    )


def rbm_log_prob(x, weights, visible, hidden):
    """An RBM's unnormalised log-density."""
    activation = 0.5 * x @ weights + hidden
    return x @ visible - 0.5 * x.square().sum(1) + nn.functional.softplus(2 * activation).sum(1) - activation.sum(1)


def score(log_prob, x):
    x = x.detach().requires_grad_()
    return torch.autograd.grad(log_prob(x).sum(), x)[0]


def hutchinson_values(net, x, scores):
    """Stein values with Hutchinson's estimate by double backward."""
    x = x.detach().requires_grad_()
    f = net(x)
    probe = torch.randn_like(x)
    product = torch.autograd.grad((f * probe).sum(), x, create_graph=True)[0]
    return (scores * f).sum(1) + (product * probe).sum(1), f.square().sum(1)


def exact_values(net, x, scores):
    """Stein values with the exact trace by one backward pass for each coordinate."""
    x = x.detach().requires_grad_()
    f = net(x)
    trace = torch.zeros(len(x))
    for i in range(x.shape[1]):
        trace = trace + torch.autograd.grad(f[:, i].sum(), x, retain_graph=True)[0][:, i]
    return ((scores * f).sum(1) + trace).detach()


def step(net, optimiser, x, log_prob, l2=0.5):
    values, norms = hutchinson_values(net, x, score(log_prob, x))
    loss = -(values.mean() - l2 * norms.mean())
    optimiser.zero_grad()
    loss.backward()
    optimiser.step()


def training_loss(model, net, x, l2):
    """The discrepancy that the critic raises and the model lowers, with a graph to the parameters of both."""
    x = x.detach().requires_grad_()
    scores = torch.autograd.grad(model.log_prob(x).sum(), x, create_graph=True)[0]
    f = net(x)
    probe = torch.randn_like(x)
    product = torch.autograd.grad((f * probe).sum(), x, create_graph=True)[0]
    values = (scores * f).sum(1) + (product * probe).sum(1)
    return values.mean() - l2 * f.square().sum(1).mean()


def discrepancy(x, log_prob, steps=1000, every=100):
    """Algorithm 1 for one model: 80/10/10, 1000 steps, the critic with the best mean minus standard deviation."""
    n = len(x)
    train, validation, test = x[: int(0.8 * n)], x[int(0.8 * n) : int(0.9 * n)], x[int(0.9 * n) :]
    net = network(x.shape[1], dropout=0.5)
    optimiser = torch.optim.Adam(net.parameters(), lr=1e-3, weight_decay=5e-4)
    best, state = -float("inf"), {}
    for number in range(1, steps + 1):
        net.train()
        step(net, optimiser, train, log_prob)
        if number % every == 0:
            net.eval()
            values = exact_values(net, validation, score(log_prob, validation))
            if values.mean() - values.std() > best:
                best = values.mean() - values.std()
                state = {name: value.clone() for name, value in net.state_dict().items()}
    net.load_state_dict(state)
    net.eval()
    return exact_values(net, test, score(log_prob, test)).mean()


def split_test(x, log_prob, steps=1000, every=100, l2=0.5):
    """Algorithm 2: 80/10/10, an MLP trained for power, the best of ten critics tested."""
    n = len(x)
    train, validation, test = x[: int(0.8 * n)], x[int(0.8 * n) : int(0.9 * n)], x[int(0.9 * n) :]
    net = network(x.shape[1], dropout=0.5)
    optimiser = torch.optim.Adam(net.parameters(), lr=1e-3, weight_decay=5e-4)
    best, state = -float("inf"), {}
    for number in range(1, steps + 1):
        net.train()
        values, norms = hutchinson_values(net, train, score(log_prob, train))
        loss = -(values.mean() / (values.std() + 1e-6) - l2 * norms.mean())
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        if number % every == 0:
            net.eval()
            values = exact_values(net, validation, score(log_prob, validation))
            if values.mean() / values.std() > best:
                best = values.mean() / values.std()
                state = {name: value.clone() for name, value in net.state_dict().items()}
    net.load_state_dict(state)
    net.eval()
    values = exact_values(net, test, score(log_prob, test))
    return len(test) ** 0.5 * values.mean() / values.std()
