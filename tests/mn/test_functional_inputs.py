"""Bad input is refused by name; degenerate input stays finite."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
from torch import Tensor

from mn import functional
from tests.mn.parity import leaves, with_grad
from tests.mn.test_functional import B, C, S, classifier, d, regressor

NAN = torch.full((B, d), float("nan"))

BAD_LOGITS: list[tuple[dict[str, Any], str]] = [
    ({"features": torch.zeros(B, d, 1)}, "features: expected shape (*, *), got (4, 5, 1)"),
    ({"keys": torch.zeros(S, d + 1)}, "keys: expected shape (*, 5), got (9, 6)"),
    ({"keys": torch.zeros(0, d), "values": torch.zeros(0, C)}, "(S >= 1), got S = 0"),
    ({"values": torch.zeros(S + 1, C)}, "values: expected shape (9, 3), got (10, 3)"),
    ({"values": torch.zeros(S, C + 1)}, "values: expected shape (9, 3), got (9, 4)"),
    ({"weight": torch.zeros(C, d - 1)}, "weight: expected shape (*, 5), got (3, 4)"),
    ({"features": NAN}, "features: expected finite numbers, got 20 NaN or infinite entries"),
    (
        {"alpha": torch.zeros(d + 1)},
        "alpha: expected a scalar () or (5,) per feature, got shape (6",
    ),
    ({"alpha": torch.zeros(C, d)}, "alpha: expected a scalar () or (5,) per feature, got shape (3"),
    ({"temperature": 0.0}, "temperature: expected a number above 0, got 0.0"),
    ({"temperature": torch.tensor(-0.2)}, "temperature: expected a number above 0, got -0.2"),
    ({"temperature": torch.ones(2)}, "temperature: expected one number, got shape (2,)"),
    ({"temperature": float("nan")}, "temperature: expected a number above 0, got nan"),
    ({"similarity": "dot"}, "similarity: expected one of cosine, euclidean, rms, got 'dot'"),
    ({"steps": 0}, "steps: expected a whole number of at least 1, got 0"),
    ({"steps": 1.5}, "steps: expected a whole number of at least 1, got 1.5"),
    ({"memory_budget": 0}, "memory_budget: expected a whole number of at least 1, got 0"),
    ({"attention": torch.zeros(B, S + 1)}, "attention: expected shape (4, 9), got (4, 10)"),
    ({"bias": torch.zeros(C)}, "expected scale (cosine head) or bias (dot head), got both"),
    ({"scale": None, "bias": torch.zeros(C + 1)}, "bias: expected shape (3,), got (4,)"),
]


@pytest.mark.parametrize("function", [functional.adapted_logits, functional.predict])
@pytest.mark.parametrize(("change", "message"), BAD_LOGITS, ids=[m for _, m in BAD_LOGITS])
def test_a_classifier_refuses(function: Any, change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        function(**classifier(**change))


BAD_MLP: list[tuple[dict[str, Any], str]] = [
    ({"layers": []}, "layers: expected at least one (weight, bias), got none"),
    (
        {"layers": [(torch.zeros(6, d), torch.zeros(6)), (torch.zeros(2, 7), torch.zeros(2))]},
        "layers[1] weight: expected shape (*, 6), got (2, 7)",
    ),
    (
        {"layers": [(torch.zeros(2, d), torch.zeros(3))]},
        "layers[0] bias: expected shape (2,), got (3,)",
    ),
    ({"values": torch.zeros(S, 3)}, "values: expected shape (9, 2), got (9, 3)"),
    ({"inputs": NAN}, "inputs: expected finite numbers, got 20"),
    ({"alpha": torch.zeros(3)}, "alpha: expected a scalar () or (2,) per layer, got shape (3,)"),
    ({"activation": "gelu"}, "activation: expected one of relu, tanh, got 'gelu'"),
]


@pytest.mark.parametrize(("change", "message"), BAD_MLP, ids=[m for _, m in BAD_MLP])
def test_an_mlp_refuses(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        functional.adapted_mlp(**regressor(**change))


BAD_IFILM: list[tuple[dict[str, Any], str]] = [
    ({"activations": torch.zeros(3)}, "activations: expected (B, C, ...), got (3,)"),
    ({"keys": torch.zeros(4, 2)}, "keys: expected shape (*, 3), got (4, 2)"),
    ({"gammas": torch.zeros(5, 3)}, "gammas: expected shape (4, 3), got (5, 3)"),
    ({"betas": torch.zeros(4, 2)}, "betas: expected shape (4, 3), got (4, 2)"),
    ({"temperature": 0}, "temperature: expected a number above 0, got 0"),
    ({"activations": torch.full((2, 3, 2, 2), torch.inf)}, "activations: expected finite"),
]


@pytest.mark.parametrize(("change", "message"), BAD_IFILM, ids=[m for _, m in BAD_IFILM])
def test_ifilm_refuses(change: dict[str, Any], message: str) -> None:
    rows = torch.zeros(4, 3)
    call = {"activations": torch.zeros(2, 3, 2, 2), "keys": rows, "gammas": rows, "betas": rows}
    with pytest.raises(ValueError, match=re.escape(message)):
        functional.ifilm(**{**call, "temperature": 0.2, **change})


def test_a_sum_that_overflows_is_no_nan() -> None:
    large = torch.full((B, d), 1e38)
    assert bool(functional.attend(large, torch.ones(S, d)).isfinite().all())


ZERO: dict[str, dict[str, Tensor]] = {
    "zero features": {"features": torch.zeros(B, d)},
    "zero keys": {"keys": torch.zeros(S, d)},
    "zero weights": {"weight": torch.zeros(C, d)},
    "all zero": {
        "features": torch.zeros(B, d),
        "keys": torch.zeros(S, d),
        "weight": torch.zeros(C, d),
    },
    "identical keys": {"keys": torch.ones(S, d)},
    "everything identical": {
        "features": torch.ones(B, d),
        "keys": torch.ones(S, d),
        "weight": torch.ones(C, d),
    },
    "features on keys": {"features": classifier()["keys"][:B].clone()},
    "one-hot values": {"values": torch.eye(C)[torch.arange(S) % C]},
    "class vectors on keys": {"weight": classifier()["keys"][:C].clone()},
}


@pytest.mark.parametrize("steps", [1, 2])
@pytest.mark.parametrize("diagonal", [False, True], ids=["scalar", "diagonal"])
@pytest.mark.parametrize("similarity", ["cosine", "euclidean"])
@pytest.mark.parametrize("head", ["cosine", "dot"])
@pytest.mark.parametrize("name", ZERO)
def test_degenerate_input_is_finite(
    name: str, head: str, similarity: str, diagonal: bool, steps: int
) -> None:
    case = with_grad(classifier(head, diagonal=diagonal, **ZERO[name]))
    out = functional.adapted_logits(**case, similarity=similarity, steps=steps)
    assert bool(out.isfinite().all())
    grads = torch.autograd.grad(out.square().sum(), leaves(case))
    assert all(bool(g.isfinite().all()) for g in grads)


@pytest.mark.parametrize("name", ["zero features", "zero keys", "identical keys"])
def test_degenerate_input_of_an_mlp_is_finite(name: str) -> None:
    change = {{"features": "inputs"}.get(key, key): value for key, value in ZERO[name].items()}
    case = with_grad(regressor(**change, steps=2))
    out = functional.adapted_mlp(**case)
    grads = torch.autograd.grad(out.square().sum(), leaves(case))
    assert all(bool(t.isfinite().all()) for t in (out, *grads))


def test_a_very_low_temperature_is_the_nearest_entry() -> None:
    case = with_grad(classifier(temperature=1e-4))
    out = functional.adapted_logits(**case)
    grads = torch.autograd.grad(out.sum(), leaves(case))
    assert all(bool(t.isfinite().all()) for t in (out, *grads))
    nearest = functional.attend(case["features"], case["keys"], temperature=1e-4)
    torch.testing.assert_close(nearest.amax(1), torch.ones(B))
