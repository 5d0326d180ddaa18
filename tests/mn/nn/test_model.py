"""The model around any backbone: outputs, what it keeps, what it explains."""

from __future__ import annotations

import copy
import pickle
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from safetensors.torch import load, save
from torch import Tensor, nn

import mn
from mn import functional
from mn.functional import _linear
from mn.nn import DotHead, Head, MetaNeighborhoods, Vanilla

torch.manual_seed(0)
x = torch.randn(6, 4)


def model(**changes: Any) -> MetaNeighborhoods:
    settings: dict[str, Any] = {"num_features": 4, "num_classes": 3, "S": 20, "alpha_init": 0.3}
    settings |= changes
    return MetaNeighborhoods(nn.Linear(4, settings["num_features"]), **settings)


def regressor(**changes: Any) -> MetaNeighborhoods:
    return model(num_classes=None, num_outputs=2, hidden=(7,), alpha_init=0.05, **changes)


KINDS: dict[str, Callable[[], MetaNeighborhoods]] = {
    "cosine": model,
    "dot": lambda: model(head="dot"),
    "diagonal": lambda: model(alpha="diagonal"),
    "dot diagonal": lambda: model(head="dot", alpha="diagonal"),
    "three steps": lambda: model(steps=3),
    "euclidean": lambda: model(similarity="euclidean"),
    "fixed": lambda: model(values="fixed", alpha_learned=False),
    "per instance": lambda: model(dropout_per="instance"),
    "mlp": regressor,
    "mlp layers": lambda: regressor(alpha="layer", steps=2),
}


def by_functional(of: MetaNeighborhoods) -> Tensor:
    """The same outputs, from nothing kept."""
    z, entries = of.backbone(x), of.dictionary
    call = {
        "alpha": of.alpha(),
        "similarity": entries.similarity,
        "temperature": entries.temperature,
        "steps": of.steps,
    }
    return of.head.adapted(z, entries.keys, entries.values, **call)


@pytest.mark.parametrize("kind", KINDS)
def test_evaluation_is_the_function_over_all_entries(kind: str) -> None:
    made = KINDS[kind]().eval()
    torch.testing.assert_close(made(x), by_functional(made))
    with torch.no_grad():
        torch.testing.assert_close(made(x), by_functional(made))


@pytest.mark.parametrize("kind", KINDS)
def test_training_reaches_every_parameter(kind: str) -> None:
    made = KINDS[kind]()
    made(x).square().sum().backward()
    missing = [n for n, p in made.named_parameters() if p.grad is None or not bool(p.grad.any())]
    assert missing == []


@pytest.mark.parametrize("kind", KINDS)
def test_predict_is_the_arg_max_or_the_outputs(kind: str) -> None:
    made = KINDS[kind]().eval()
    with torch.no_grad():
        out = made(x)
    expected = out if made.dictionary.num_classes is None else out.argmax(1)
    assert torch.equal(made.predict(x), expected)


@pytest.mark.parametrize("kind", KINDS)
def test_weights_go_through_safetensors_to_another_model(kind: str) -> None:
    made, other = KINDS[kind]().eval(), KINDS[kind]().eval()
    made.predict(x)
    other.load_state_dict(load(save(made.state_dict())))
    assert torch.equal(other(x), made(x))


def test_it_is_at_the_top_of_the_package() -> None:
    assert mn.MetaNeighborhoods is MetaNeighborhoods
    with pytest.raises(AttributeError, match="no attribute 'MetaNeighbourhoods'"):
        _ = mn.MetaNeighbourhoods


def test_vanilla_is_backbone_and_head() -> None:
    made = model()
    assert torch.equal(Vanilla(made.backbone, made.head)(x), made.unadapted(x))


def test_attention_is_over_all_entries_also_in_training() -> None:
    made = model()
    torch.testing.assert_close(made.attention(x), made.eval().attention(x))


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_a_comparison_is_of_all_entries_before_and_after(kind: str, training: bool) -> None:
    made = KINDS[kind]().train(training)
    found = made.compare(x)
    made.eval()
    torch.testing.assert_close(found.before, made.unadapted(x))
    torch.testing.assert_close(found.after, made(x))
    torch.testing.assert_close(found.attention, made.attention(x))


def test_a_comparison_takes_one_pass_of_the_backbone() -> None:
    made, passes = model().eval(), []
    made.backbone.register_forward_hook(lambda *_: passes.append(1))
    made.compare(x)
    assert len(passes) == 1


def test_autocast_of_the_whole_model() -> None:
    made = model().eval()
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        rough, labels = made(x), made.predict(x)
    torch.testing.assert_close(rough, made(x), rtol=0.1, atol=0.3)
    assert labels.shape == (6,)
    made.train()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = made(x).square().mean()
    loss.backward()
    assert all(p.grad is not None and bool(p.grad.isfinite().all()) for p in made.parameters())


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_a_model_held_in_bfloat16_adapts_in_float32(kind: str, training: bool) -> None:
    made = KINDS[kind]().bfloat16().train(training)
    out = made(x.bfloat16())
    out.square().sum().backward()
    assert out.dtype == torch.float32
    assert made.predict(x.bfloat16()).shape[0] == 6
    assert made.explain(x.bfloat16(), k=2).moved.shape[:2] == (6, 2)


def test_a_head_of_your_own_needs_two_methods() -> None:
    class Twice(Head):
        def __init__(self) -> None:
            super().__init__()
            self.num_features, self.num_outputs = 4, 3
            self.dot = DotHead(4, 3)

        def forward(self, features: Tensor) -> Tensor:
            out: Tensor = 2 * self.dot(features)
            return out

        def adapted_by(self, features: Tensor, near: Any, attention: Tensor, **how: Any) -> Tensor:
            return 2 * self.dot.adapted(features, *near, attention=attention, **how)

    made = model(head=Twice()).eval()
    made(x).sum().backward()
    assert torch.equal(made.predict(x), made(x).argmax(1))


# --- what is kept at inference


def write_to(tensor: Tensor, how: str) -> None:
    if how == "in place":
        with torch.no_grad():
            tensor.mul_(-2)
    elif how == ".data":
        tensor.data.mul_(-2)
    elif how == "copy_":
        with torch.no_grad():
            tensor.view(-1)[:1].copy_(torch.tensor([2.0]))
    elif how == "numpy":
        tensor.detach().numpy()[...] *= -2
    elif how == "new data":
        tensor.data = tensor.data * -2


@pytest.mark.parametrize("how", ["in place", ".data", "copy_", "numpy", "new data"])
@pytest.mark.parametrize(
    "name", ["dictionary.keys", "dictionary.raw_values", "head.weight", "head.scale", "alpha.a"]
)
def test_any_change_of_a_parameter_is_seen(name: str, how: str) -> None:
    made = model().eval()
    with torch.no_grad():
        before = made(x)
        write_to(made.get_parameter(name), how)
        after = made(x)
        torch.testing.assert_close(after, by_functional(made))
    assert not torch.equal(after, before)


def change_state(made: MetaNeighborhoods) -> None:
    made.load_state_dict(model().state_dict())


def change_type(made: MetaNeighborhoods) -> None:
    made.to(torch.bfloat16).float()


def change_by_optimiser(made: MetaNeighborhoods) -> None:
    made.train()
    made(x).square().sum().backward()
    torch.optim.SGD(made.parameters(), lr=0.5).step()
    made.eval()


def change_by_fused_optimiser(made: MetaNeighborhoods) -> None:
    made(x).square().sum().backward()
    torch.optim.AdamW(made.parameters(), lr=0.5, fused=True).step()


def change_parameter(made: MetaNeighborhoods) -> None:
    made.dictionary.keys = nn.Parameter(torch.randn(20, 4))


def change_similarity(made: MetaNeighborhoods) -> None:
    made.dictionary.similarity = "euclidean"


def change_a_parameter_that_was_replaced(made: MetaNeighborhoods) -> None:
    old = made.head.weight
    made.head.weight = nn.Parameter(old.detach().clone())
    made.predict(x)
    write_to(old, "in place")


def change_head(made: MetaNeighborhoods) -> None:
    made.head = DotHead(4, 3)


@pytest.mark.parametrize(
    "change",
    [
        change_state,
        change_type,
        change_by_optimiser,
        change_by_fused_optimiser,
        change_parameter,
        change_similarity,
        change_a_parameter_that_was_replaced,
        change_head,
    ],
)
def test_any_change_of_the_model_is_seen(change: Callable[[MetaNeighborhoods], None]) -> None:
    made = model().eval()
    made.predict(x)
    change(made)
    with torch.no_grad():
        torch.testing.assert_close(made(x), by_functional(made))
        assert torch.equal(made.predict(x), by_functional(made).argmax(1))


def test_the_keys_run_through_the_network_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    neighbors = _linear.neighbors

    def counted(*args: Any) -> Any:
        calls.append(args)
        return neighbors(*args)

    monkeypatch.setattr(_linear, "neighbors", counted)
    made = regressor().eval()
    for _ in range(3):
        made.predict(x)
    assert len(calls) == 1


def test_nothing_is_kept_while_gradients_are_recorded() -> None:
    made = model().eval()
    made.predict(x)
    made(x).sum().backward()
    assert made.dictionary.keys.grad is not None


def test_a_frozen_model_still_gives_gradients_of_its_input() -> None:
    made = model().eval().requires_grad_(False)
    with torch.inference_mode():
        made(x)
    own = x.clone().requires_grad_()
    made(own).sum().backward()
    assert own.grad is not None
    assert bool(own.grad.any())
    made.requires_grad_(True)
    made(x).sum().backward()
    assert made.head.weight.grad is not None


def test_what_is_kept_is_no_part_of_the_model() -> None:
    made = model().eval()
    names, size = set(made.state_dict()), len(pickle.dumps(made))
    made.predict(x)
    assert set(made.state_dict()) == names
    assert len(pickle.dumps(made)) == size
    twin = copy.deepcopy(made)
    with torch.no_grad():
        twin.head.weight.add_(1)
        torch.testing.assert_close(twin(x), by_functional(twin))
        torch.testing.assert_close(made(x), by_functional(made))


# --- explain


def test_an_explanation_names_the_heaviest_entries() -> None:
    made = model().eval()
    why, ω = made.explain(x, k=4), made.attention(x)
    torch.testing.assert_close(why.weights, ω.sort(1, descending=True).values[:, :4])
    assert torch.equal(ω.gather(1, why.entries), why.weights)
    assert why.classes is not None
    assert torch.equal(why.classes, made.dictionary.values.argmax(1)[why.entries])
    assert why.winner is not None
    assert torch.equal(why.winner, made.predict(x))


@pytest.mark.parametrize("kind", [k for k in KINDS if not k.startswith("mlp")])
def test_an_entry_moved_the_logit_by_what_is_lost_without_it(kind: str) -> None:
    made = KINDS[kind]().eval()
    why = made.explain(x, k=3)
    assert why.winner is not None
    with torch.no_grad():
        ω = made.attention(x)
        ω[torch.arange(6), why.entries[:, 1]] = 0
        entries = made.dictionary
        without = made.head.adapted(
            made.backbone(x),
            entries.keys,
            entries.values,
            alpha=made.alpha(),
            attention=ω,
            steps=made.steps,
        )
    lost = why.after - without.gather(1, why.winner.unsqueeze(1)).squeeze(1)
    torch.testing.assert_close(why.moved[:, 1], lost, atol=1e-5, rtol=1e-4)


def test_for_the_dot_head_the_parts_add_up_to_the_adaptation() -> None:
    why = model(head="dot").eval().explain(x, k=20)
    torch.testing.assert_close(why.moved.sum(1), why.after - why.before, atol=1e-5, rtol=1e-4)


def test_a_regressor_explains_every_output() -> None:
    why = regressor().eval().explain(x, k=3)
    assert why.moved.shape == (6, 3, 2)
    assert why.values.shape == (6, 3, 2)
    assert why.classes is None
    assert why.winner is None


@pytest.mark.parametrize("k", [0, 21])
def test_more_entries_than_there_are_cannot_be_named(k: int) -> None:
    with pytest.raises(ValueError, match=f"from 1 to the 20 entries of the dictionary, got {k}"):
        model().explain(x, k=k)


# --- bad settings


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_outputs": 2}, "expected one of num_classes and num_outputs, got num_classes=3"),
        ({"head": "linear"}, "head: expected one of cosine, dot, mlp, got 'linear'"),
        ({"head": nn.Linear(4, 3)}, "head: expected one of cosine, dot, mlp or an mn.nn.Head"),
        ({"head": DotHead(5, 3)}, "head: expected 4 features and 3 outputs, got 5 and 3"),
        ({"head": DotHead(4, 2)}, "head: expected 4 features and 3 outputs, got 4 and 2"),
        ({"alpha": "layer"}, "alpha='layer': expected an MLP head, got CosineHead"),
        ({"alpha": "full"}, "alpha: expected one of scalar, diagonal, layer, got 'full'"),
        ({"steps": 0}, "steps: expected a whole number of at least 1, got 0"),
        ({"S": 0}, "size: expected a whole number of at least 1, got 0"),
        ({"T": -1.0}, "temperature: expected a number above 0, got -1.0"),
    ],
)
def test_bad_settings_are_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        model(**change)


def test_an_mlp_has_no_rate_per_feature() -> None:
    with pytest.raises(ValueError, match="alpha of an MLP head: expected scalar or layer"):
        regressor(alpha="diagonal")


@pytest.mark.parametrize("training", [True, False])
def test_a_backbone_that_does_not_fit_is_named(training: bool) -> None:
    made = MetaNeighborhoods(nn.Identity(), num_features=4, num_classes=2, S=5).train(training)
    with pytest.raises(ValueError, match=re.escape("expected features (B, 4), got (6, 4, 1)")):
        made(x.unsqueeze(2))
    with pytest.raises(ValueError, match="features: expected finite numbers, got 24 NaN"):
        made(x * float("nan"))
    with pytest.raises(ValueError, match=re.escape("expected features (B, 4), got (6, 3)")):
        made(x[:, :3])


def test_the_functional_form_is_what_training_runs() -> None:
    made = model(dropout=0.0)
    z, entries = made.backbone(x), made.dictionary
    expected = functional.adapted_logits(
        z,
        entries.keys,
        entries.values,
        made.head.weight,
        alpha=made.alpha(),
        scale=made.head.scale,
    )
    torch.testing.assert_close(made(x), expected)
