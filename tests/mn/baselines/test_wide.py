"""The extra layer of vanilla: exactly as many parameters as it is told to have."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mn.baselines.wide import WideLayer
from mn.nn import Dictionary

# whole units only, a part of one besides, a part of one alone
SIZES = [(4, 15), (4, 17), (4, 3)]


@settings(max_examples=60, deadline=None)
@given(d=st.integers(1, 40), parameters=st.integers(1, 500))
def test_it_has_exactly_so_many_parameters(d: int, parameters: int) -> None:
    layer = WideLayer(d, parameters=parameters)
    assert sum(p.numel() for p in layer.parameters()) == parameters
    assert layer.num_outputs == -(-parameters // (d + 1))
    assert layer(torch.ones(3, d)).shape == (3, layer.num_outputs)


def test_a_dictionary_has_as_many_parameters_as_it_is_given() -> None:
    dictionary = Dictionary(7, 5, num_classes=3)
    assert sum(p.numel() for p in dictionary.parameters()) == 7 * (5 + 3)


@pytest.mark.parametrize(("d", "parameters"), SIZES)
def test_it_is_units_that_see_all_features_and_one_that_sees_the_first(d: int, parameters: int) -> None:
    torch.manual_seed(0)
    layer, x = WideLayer(d, parameters=parameters), torch.randn(6, d)
    torch.nn.init.normal_(layer.bias)
    units = [
        layer.bias[u] + sum(layer.weight[u, k] * x[:, k] for k in range(d)) for u in range(parameters // 5)
    ]
    if layer.rest is not None:
        units.append(sum(w * x[:, k] for k, w in enumerate(layer.rest)))
    torch.testing.assert_close(layer(x), torch.stack(units, 1).clamp(min=0))


@pytest.mark.parametrize(("d", "parameters"), SIZES)
def test_gradients_reach_every_parameter(d: int, parameters: int) -> None:
    torch.manual_seed(0)
    layer, x = WideLayer(d, parameters=parameters), torch.randn(1, d)
    layer(torch.cat([x, -x])).sum().backward()  # without biases, a unit is awake for one of the two
    for name, parameter in layer.named_parameters():
        assert parameter.grad is not None, name
        assert bool((parameter.grad != 0).all()), name


def test_it_starts_with_he_weights_and_no_biases() -> None:
    torch.manual_seed(0)
    layer = WideLayer(50, parameters=51 * 200 + 50)
    assert layer.rest is not None
    assert layer.weight.std().item() == pytest.approx((2 / 50) ** 0.5, rel=0.05)
    assert layer.rest.std().item() == pytest.approx((2 / 50) ** 0.5, rel=0.4)
    assert not layer.bias.any()


def test_a_layer_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="parameters: expected at least 1, got 0"):
        WideLayer(4, parameters=0)
