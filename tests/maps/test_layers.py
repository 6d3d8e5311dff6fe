import torch

from steinscope.maps.layers import linear_layers

from helpers import generator


def test_first_weights_are_torchs_own_distribution_from_a_generator():
    state = torch.get_rng_state()
    layers = linear_layers([400, 50, 3], generator(1))
    assert [(layer.in_features, layer.out_features) for layer in layers] == [(400, 50), (50, 3)]
    # Uniform between ± 1 / √inputs. The largest of 20 000 is within a thousandth of the end with probability 1 - 2e-9.
    assert 0.999 / 20 < float(layers[0].weight.detach().abs().max()) <= 1 / 20
    assert float(layers[1].bias.detach().abs().max()) <= 1 / 50**0.5
    same, other = linear_layers([400, 50, 3], generator(1)), linear_layers([400, 50, 3], generator(2))
    assert torch.equal(layers[1].weight, same[1].weight) and not torch.equal(layers[1].weight, other[1].weight)
    assert torch.equal(torch.get_rng_state(), state)
