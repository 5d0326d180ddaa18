"""Heads: the plain output, and what they hand to ``mn.functional``."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch

from mn import functional
from mn.nn import Alpha, CosineHead, DotHead, Head, MLPHead

HEADS = [CosineHead(4, 3), DotHead(4, 3), MLPHead(4, 3, hidden=(5, 6), activation="tanh")]
IDS = ["cosine", "dot", "mlp"]

torch.manual_seed(0)
z, keys, values = torch.randn(6, 4), torch.randn(9, 4), torch.randn(9, 3).softmax(1)


@pytest.mark.parametrize("head", HEADS, ids=IDS)
def test_no_rate_leaves_the_plain_output(head: Head) -> None:
    torch.testing.assert_close(head.adapted(z, keys, values, alpha=0.0), head(z))


@pytest.mark.parametrize("steps", [1, 2])
@pytest.mark.parametrize("head", HEADS, ids=IDS)
def test_the_two_halves_are_the_whole(head: Head, steps: int) -> None:
    ω = functional.attend(z, keys, temperature=0.3)
    alpha = torch.tensor(0.2)
    halves = head.adapted_by(z, head.neighbors(keys, values), ω, alpha=alpha, steps=steps)
    whole = head.adapted(z, keys, values, alpha=alpha, temperature=0.3, steps=steps)
    torch.testing.assert_close(halves, whole)


@pytest.mark.parametrize("steps", [1, 2])
def test_they_are_the_functions_with_their_parameters(steps: int) -> None:
    how = {"alpha": torch.tensor(0.2), "temperature": 0.3, "steps": steps}
    cosine, dot, mlp = HEADS
    expected = [
        functional.adapted_logits(z, keys, values, cosine.weight, scale=cosine.scale, **how),
        functional.adapted_logits(z, keys, values, dot.weight, bias=dot.bias, **how),
        functional.adapted_mlp(
            z, keys, values, [(m.weight, m.bias) for m in mlp.layers], activation="tanh", **how
        ),
    ]
    for head, out in zip(HEADS, expected, strict=True):
        torch.testing.assert_close(head.adapted(z, keys, values, **how), out)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"features": torch.zeros(6, 5)}, "keys: expected shape (*, 5), got (9, 4)"),
        ({"values": torch.zeros(9, 2)}, "values: expected shape (9, 3), got (9, 2)"),
        ({"alpha": torch.zeros(7)}, "alpha: expected a scalar ()"),
        ({"steps": 0}, "steps: expected a whole number of at least 1, got 0"),
        ({"attention": torch.zeros(6, 8)}, "attention: expected shape (6, 9), got (6, 8)"),
        ({"temperature": 0.0}, "temperature: expected a number above 0, got 0.0"),
    ],
)
@pytest.mark.parametrize("head", HEADS, ids=IDS)
def test_what_does_not_fit_is_refused(head: Head, change: dict[str, Any], message: str) -> None:
    call = {"features": z, "keys": keys, "values": values, "alpha": 0.2, **change}
    with pytest.raises(ValueError, match=re.escape(message)):
        head.adapted(**call)


@pytest.mark.parametrize("head", HEADS, ids=IDS)
def test_every_parameter_gets_a_gradient(head: Head) -> None:
    grads = torch.autograd.grad(
        head.adapted(z, keys, values, alpha=0.2).square().sum(), list(head.parameters())
    )
    assert all(bool(g.isfinite().all()) and bool((g != 0).any()) for g in grads)


@pytest.mark.parametrize("d", [8, 512])
@pytest.mark.parametrize("kind", [CosineHead, DotHead])
def test_class_vectors_start_with_length_one(kind: type[CosineHead], d: int) -> None:
    lengths = kind(d, 100).weight.norm(dim=1)
    assert lengths.mean().item() == pytest.approx(1.0, rel=0.1)


def test_a_linear_regressor_has_no_hidden_layer() -> None:
    assert len(MLPHead(4, 2, hidden=()).layers) == 1


def test_an_unknown_activation_is_refused() -> None:
    with pytest.raises(ValueError, match="activation: expected one of relu, tanh, got 'gelu'"):
        MLPHead(4, 2, activation="gelu")


def test_alpha_is_never_negative() -> None:
    alpha = Alpha(init=-0.05)
    assert alpha().item() == pytest.approx(0.05)


def test_a_fixed_alpha_is_no_parameter_but_is_saved() -> None:
    alpha = Alpha("diagonal", 4, init=10.0, learned=False)
    assert list(alpha.parameters()) == []
    assert alpha.state_dict()["a"].tolist() == [10.0] * 4


@pytest.mark.parametrize(
    ("kind", "size", "message"),
    [
        ("matrix", None, "alpha: expected one of scalar, diagonal, layer, got 'matrix'"),
        ("diagonal", None, "size of a diagonal alpha: expected the number of rates, got None"),
        ("scalar", 3, "size of a scalar alpha: expected none, got 3"),
    ],
)
def test_a_wrong_alpha_is_refused(kind: str, size: int | None, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        Alpha(kind, size)
