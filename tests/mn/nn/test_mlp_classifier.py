"""The MLP as a classifier: adapted on the cross entropy, as its definition says."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from mn.nn import DotHead, MetaNeighborhoods, MLPHead
from tests import reference
from tests.mn.parity import assert_same

D, C, S, B = 4, 3, 7, 5


def case(seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """Features, keys and soft values in float64."""
    generator = torch.Generator().manual_seed(seed)
    z, k, v = (
        torch.randn(n, w, generator=generator, dtype=torch.float64) for n, w in ((B, D), (S, D), (S, C))
    )
    return z, k, v.softmax(1)


def head_of(hidden: tuple[int, ...] = (5, 6), activation: str = "tanh") -> MLPHead:
    torch.manual_seed(0)
    head = MLPHead(D, num_classes=C, hidden=hidden, activation=activation).double()
    for layer in head.linears:
        nn.init.normal_(layer.bias, std=0.5)
    return head


def plain(head: MLPHead, features: Tensor, keys: Tensor, values: Tensor, alpha: Tensor, steps: int) -> Tensor:
    """A gradient for every instance, by autograd."""
    depths = range(len(head.linears))
    params = {f"{kind}{i}": getattr(head.linears[i], kind) for i in depths for kind in ("weight", "bias")}
    rates = {name: alpha[int(name[-1])] if alpha.ndim else alpha for name in params}
    between = {"relu": torch.relu, "tanh": torch.tanh}[head.activation]

    def apply(own: reference.Params, h: Tensor) -> Tensor:
        for i in depths:
            h = nn.functional.linear(h if i == 0 else between(h), own[f"weight{i}"], own[f"bias{i}"])
        return h

    ω = reference.attend(features, keys, "euclidean", 0.5)
    return reference.adapt(apply, params, rates, reference.cross_entropy, features, keys, values, ω, steps)


@pytest.mark.parametrize("steps", [1, 2])
@pytest.mark.parametrize("activation", ["relu", "tanh"])
@pytest.mark.parametrize("hidden", [(), (5,), (5, 6)], ids=["linear", "one layer", "two layers"])
@pytest.mark.parametrize("rates", ["scalar", "layer"])
def test_it_is_a_gradient_step_on_the_cross_entropy(
    rates: str, hidden: tuple[int, ...], activation: str, steps: int
) -> None:
    """Outputs, and gradients of every parameter, feature, key, value and rate."""
    head = head_of(hidden, activation)
    alpha = torch.tensor(0.4) if rates == "scalar" else torch.tensor([0.2, 0.7, 0.4][: len(hidden) + 1])
    leaves = [t.requires_grad_() for t in (*case(), alpha.double())]
    z, k, v, α = leaves
    probe = torch.randn(B, C, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    results = []
    for out in (
        head.adapted(z, k, v, alpha=α, similarity="euclidean", temperature=0.5, steps=steps),
        plain(head, z, k, v, α, steps),
    ):
        grads = torch.autograd.grad((out * probe).sum(), [*leaves, *head.parameters()])
        results.append([out.detach(), *grads])
    assert (results[1][0] - head(z)).abs().max() > 0.01, "the step is worth a comparison"
    assert_same(*results, tolerance=1e-9)


def test_a_step_goes_towards_the_class_of_the_entries() -> None:
    head, (z, k, _) = head_of(), case()
    values = torch.zeros(S, C, dtype=torch.float64)
    values[:, 2] = 1
    before, after = head(z).softmax(1), head.adapted(z, k, values, alpha=0.05).softmax(1)
    assert bool((after[:, 2] > before[:, 2]).all())


@pytest.mark.parametrize("steps", [1, 2])
def test_no_rate_leaves_the_plain_logits(steps: int) -> None:
    head, (z, k, v) = head_of(), case()
    torch.testing.assert_close(head.adapted(z, k, v, alpha=0.0, steps=steps), head(z))


@pytest.mark.parametrize("steps", [1, 2])
def test_without_hidden_layers_it_is_the_dot_head(steps: int) -> None:
    head, (z, k, v) = head_of(()), case()
    dot = DotHead(D, C).double()
    with torch.no_grad():
        dot.weight.copy_(head.linears[0].weight)
        dot.bias.copy_(head.linears[0].bias)
    torch.testing.assert_close(
        head.adapted(z, k, v, alpha=0.3, steps=steps), dot.adapted(z, k, v, alpha=0.3, steps=steps)
    )


@pytest.mark.parametrize("steps", [1, 2])
def test_the_order_of_the_entries_changes_nothing(steps: int) -> None:
    head, (z, k, v) = head_of(), case()
    order = torch.randperm(S, generator=torch.Generator().manual_seed(2))
    torch.testing.assert_close(
        head.adapted(z, k[order], v[order], alpha=0.3, steps=steps),
        head.adapted(z, k, v, alpha=0.3, steps=steps),
    )


def test_no_rate_in_a_layer_leaves_that_layer() -> None:
    """With the last layer alone moving, it is a dot head on the hidden units."""
    head, (z, k, v) = head_of((5,)), case()
    first, last = head.linears
    dot = DotHead(5, C).double()
    with torch.no_grad():
        dot.weight.copy_(last.weight)
        dot.bias.copy_(last.bias)
    ω = reference.attend(z, k, "cosine", 0.2)
    torch.testing.assert_close(
        head.adapted(z, k, v, alpha=torch.tensor([0.0, 0.3]).double(), attention=ω),
        dot.adapted(first(z).tanh(), first(k).tanh(), v, alpha=0.3, attention=ω),
    )


# --- in a model


def model_of(**settings: Any) -> MetaNeighborhoods:
    torch.manual_seed(3)
    return MetaNeighborhoods(
        nn.Identity(), num_features=D, num_classes=C, S=S, head="mlp", hidden=(5,), alpha_init=0.5,
        key_scale=1.0, value_std=0.3, **settings,
    )  # fmt: skip


@pytest.mark.parametrize("alpha", ["scalar", "layer"])
@pytest.mark.parametrize("steps", [1, 2])
@pytest.mark.parametrize("similarity", ["cosine", "euclidean"])
def test_predicted_labels_are_those_of_the_logits(similarity: str, steps: int, alpha: str) -> None:
    model = model_of(similarity=similarity, steps=steps, alpha=alpha).eval()
    x = torch.randn(100, D, generator=torch.Generator().manual_seed(0))
    assert len(model.predict(x).unique()) > 1, "something to tell apart"
    assert torch.equal(model.predict(x), model(x).argmax(1))
    with torch.inference_mode():
        assert torch.equal(model.predict(x), model(x).argmax(1))


def test_the_model_adapts_on_the_probabilities_of_its_entries() -> None:
    model = model_of(similarity="euclidean", T=0.5).double().eval()
    of, z = model.dictionary, case()[0]
    assert isinstance(model.head, MLPHead)
    torch.testing.assert_close(model(z), plain(model.head, z, of.keys, of.values, model.alpha(), 1))


def test_every_parameter_learns() -> None:
    model = model_of(dropout=0.0)
    x = torch.randn(B, D)
    nn.functional.cross_entropy(model(x), torch.tensor([0, 1, 2, 0, 1])).backward()
    assert [name for name, p in model.named_parameters() if p.grad is None or not p.grad.any()] == []


def test_an_explanation_names_classes() -> None:
    model = model_of().eval()
    x = torch.randn(B, D)
    why = model.explain(x, k=2)
    assert why.winner is not None
    assert torch.equal(why.winner, model.predict(x))
    assert why.classes is not None
    assert torch.equal(why.classes, model.dictionary.values.argmax(1)[why.entries])


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ({}, "expected one of num_outputs and num_classes, got num_outputs=None, num_classes=None"),
        ({"num_outputs": 1, "num_classes": 2}, "got num_outputs=1, num_classes=2"),
    ],
)
def test_it_is_either_a_regressor_or_a_classifier(sizes: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        MLPHead(D, **sizes)


def test_rates_per_feature_are_refused() -> None:
    with pytest.raises(ValueError, match="alpha of an MLP head: expected scalar or layer, got diagonal"):
        model_of(alpha="diagonal")
