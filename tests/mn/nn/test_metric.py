"""How features are compared: with a learned factor for each, and by the root of the mean square."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call

from mn import functional
from mn.nn import Dictionary, MetaNeighborhoods
from tests import reference

D, S, B = 3, 6, 5
torch.manual_seed(0)
x = torch.randn(B, D)
scale = torch.tensor([0.7, -0.4, 0.2])
SIMILARITIES = ["cosine", "euclidean", "rms"]
HEADS = ["cosine", "dot", "mlp"]


def model_of(
    head: str = "mlp", metric: str = "learned", similarity: str = "euclidean", **settings: object
) -> MetaNeighborhoods:
    torch.manual_seed(1)
    return MetaNeighborhoods(
        nn.Identity(), num_features=D, num_classes=2, S=S, head=head, hidden=(4,), activation="tanh", T=0.5,
        similarity=similarity, alpha_init=0.3, dropout=0.0, metric=metric, key_scale=1.0, value_std=0.3,
        **settings,  # type: ignore[arg-type]
    )  # fmt: skip


def rescale(model: MetaNeighborhoods, by: Tensor = scale) -> None:
    assert model.dictionary.log_scale is not None
    with torch.no_grad():
        model.dictionary.log_scale.copy_(by)


def plain_attention(queries: Tensor, keys: Tensor, similarity: str, temperature: float) -> Tensor:
    """By the reference, which knows no rms."""
    if similarity == "rms":
        return reference.attend(queries, keys, "euclidean", temperature * queries.shape[1] ** 0.5)
    return reference.attend(queries, keys, similarity, temperature)


# --- learned


def test_a_fixed_metric_has_no_parameter() -> None:
    assert Dictionary(S, D, num_classes=2).log_scale is None
    learned = Dictionary(S, D, num_classes=2, metric="learned").state_dict()
    assert learned.keys() - Dictionary(S, D, num_classes=2).state_dict().keys() == {"log_scale"}


def test_other_metrics_are_refused() -> None:
    with pytest.raises(ValueError, match="metric: expected one of fixed, learned, got 'full'"):
        Dictionary(S, D, num_classes=2, metric="full")


@pytest.mark.parametrize("training", [False, True], ids=["evaluation", "training"])
@pytest.mark.parametrize("similarity", SIMILARITIES)
@pytest.mark.parametrize("head", HEADS)
def test_it_starts_as_the_fixed_metric(head: str, similarity: str, training: bool) -> None:
    """Outputs and gradients; those of cosines are summed in another order."""
    fixed = model_of(head, "fixed", similarity).train(training)
    learned = model_of(head, "learned", similarity).train(training)
    assert learned.load_state_dict(fixed.state_dict(), strict=False).missing_keys == ["dictionary.log_scale"]
    grads = []
    for model in (fixed, learned):
        out = model(x)
        names, of = zip(*((n, p) for n, p in model.named_parameters() if "log_scale" not in n), strict=True)
        grads.append([out.detach(), *torch.autograd.grad(out.square().sum(), of)])
    assert torch.equal(grads[0][0], grads[1][0])
    for name, a, b in zip(names, *(g[1:] for g in grads), strict=True):
        if similarity == "cosine":
            torch.testing.assert_close(a, b, msg=name)
        else:
            assert torch.equal(a, b), name


@pytest.mark.parametrize("similarity", SIMILARITIES)
def test_features_and_keys_are_compared_multiplied_by_their_factors(similarity: str) -> None:
    model = model_of(similarity=similarity)
    rescale(model)
    keys, factors = model.dictionary.keys, scale.exp()
    expected = plain_attention(x * factors, keys * factors, similarity, 0.5)
    assert not torch.allclose(expected, plain_attention(x, keys, similarity, 0.5), atol=1e-2)
    for ω in (
        model.dictionary.attend(x),
        model.dictionary(x)[2],
        model.attention(x),
        model.eval().attention(x),
    ):
        torch.testing.assert_close(ω, expected)


@pytest.mark.parametrize("training", [False, True], ids=["evaluation", "training"])
@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("similarity", SIMILARITIES)
def test_it_changes_the_attention_and_not_the_features_of_the_head(
    similarity: str, head: str, training: bool
) -> None:
    model = model_of(head, similarity=similarity).train(training)
    rescale(model)
    keys, factors = model.dictionary.keys, scale.exp()
    ω = plain_attention(x * factors, keys * factors, similarity, 0.5)
    expected = model.head.adapted(x, keys, model.dictionary.values, alpha=model.alpha(), attention=ω)
    torch.testing.assert_close(model(x), expected)


@pytest.mark.parametrize("similarity", SIMILARITIES)
@pytest.mark.parametrize("head", HEADS)
def test_predicted_labels_are_those_of_the_logits(head: str, similarity: str) -> None:
    model = model_of(head, similarity=similarity).eval()
    rescale(model, torch.tensor([2.0, -2.0, 1.0]))
    many = torch.randn(200, D, generator=torch.Generator().manual_seed(0))
    assert torch.equal(model.predict(many), model(many).argmax(1))


@pytest.mark.parametrize("similarity", SIMILARITIES)
@pytest.mark.parametrize("head", HEADS)
def test_its_gradient_is_that_of_finite_differences(head: str, similarity: str) -> None:
    model = model_of(head, similarity=similarity).double().train()
    at = scale.double().requires_grad_()

    def outputs(log_scale: Tensor) -> Tensor:
        out: Tensor = functional_call(model, {"dictionary.log_scale": log_scale}, (x.double(),))
        return out

    assert bool((torch.autograd.grad(outputs(at).square().sum(), at)[0] != 0).all())
    assert torch.autograd.gradcheck(outputs, at)


def test_its_gradient_leaves_out_the_rows_own_entries() -> None:
    model = model_of(init="rows").double().train()
    model.dictionary.fill(x.double(), torch.tensor([0, 1, 0, 1, 1]))
    at = scale.double().requires_grad_()

    def outputs(log_scale: Tensor) -> Tensor:
        arguments = (x.double(), torch.arange(B))
        out: Tensor = functional_call(model, {"dictionary.log_scale": log_scale}, arguments)
        return out

    assert torch.autograd.gradcheck(outputs, at)


def test_a_feature_that_says_nothing_shrinks() -> None:
    """The first feature tells the class, the other two are noise."""
    torch.manual_seed(0)
    inputs = torch.randn(40, D)
    model = model_of(init="rows")
    labels = (inputs[:, 0] > 0).long()
    model.dictionary.fill(inputs, labels)
    log_scale = model.dictionary.log_scale
    assert log_scale is not None
    for _ in range(40):
        loss = nn.functional.cross_entropy(model(inputs, torch.arange(40)), labels)
        (slope,) = torch.autograd.grad(loss, log_scale)
        log_scale.data -= slope
    assert log_scale[0] > log_scale[1:].max() + 0.1


def in_place(log_scale: Tensor) -> None:
    with torch.no_grad():
        log_scale.copy_(scale)


def by_data(log_scale: Tensor) -> None:
    log_scale.data += scale


def by_numpy(log_scale: Tensor) -> None:
    log_scale.detach().numpy()[:] = scale.numpy()


@pytest.mark.parametrize("change", [in_place, by_data, by_numpy])
@pytest.mark.parametrize("similarity", SIMILARITIES)
@pytest.mark.parametrize("head", HEADS)
def test_what_inference_kept_is_let_go_when_it_changes(
    head: str, similarity: str, change: Callable[[Tensor], None]
) -> None:
    model = model_of(head, similarity=similarity).eval()
    assert model.dictionary.log_scale is not None
    with torch.inference_mode():
        before = model(x)
    change(model.dictionary.log_scale)
    with torch.inference_mode():
        after, fresh = model(x), copy.deepcopy(model)(x)
    assert torch.equal(after, fresh)
    assert not torch.allclose(after, before, atol=1e-4)


# --- rms


@pytest.mark.parametrize("d", [1, 3, 16])
def test_rms_is_the_distance_at_a_temperature_times_root_d(d: int) -> None:
    queries, keys = torch.randn(4, d), torch.randn(6, d)
    rms = functional.attend(queries, keys, similarity="rms", temperature=0.3)
    distance = functional.attend(queries, keys, similarity="euclidean", temperature=0.3 * d**0.5)
    torch.testing.assert_close(rms, distance)


@pytest.mark.parametrize("similarity", ["euclidean", "rms"])
def test_a_far_input_is_finite_though_its_square_is_not(similarity: str) -> None:
    far = torch.full((1, 3), 3e19)
    ω = functional.attend(far, torch.eye(3), similarity=similarity, temperature=0.1)
    torch.testing.assert_close(ω, torch.full((1, 3), 1 / 3))


def test_columns_given_twice_change_nothing_for_rms() -> None:
    queries, keys = torch.randn(4, 3), torch.randn(6, 3)
    once = functional.attend(queries, keys, similarity="rms")
    twice = functional.attend(torch.cat([queries] * 2, 1), torch.cat([keys] * 2, 1), similarity="rms")
    torch.testing.assert_close(once, twice)
