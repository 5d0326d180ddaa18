"""What the functions promise besides being exact: limits, memory, precision, derivatives."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from mn import functional
from mn.functional._contraction import contract, plan_for
from tests.mn.parity import Case, leaves, with_grad

B, S, C, d = 4, 9, 3, 5


def classifier(head: str = "cosine", *, diagonal: bool = False, **changes: Any) -> Case:
    generator = torch.Generator().manual_seed(0)

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator)

    case: Case = {
        "features": normal(B, d),
        "keys": normal(S, d),
        "values": normal(S, C).softmax(1),
        "weight": normal(C, d),
        "alpha": normal(d).abs() if diagonal else torch.tensor(0.3),
    }
    case.update({"scale": torch.tensor(10.0)} if head == "cosine" else {"bias": normal(C)})
    return {**case, **changes}


def regressor(**changes: Any) -> Case:
    generator = torch.Generator().manual_seed(0)

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator)

    case: Case = {
        "inputs": normal(B, d),
        "keys": normal(S, d),
        "values": normal(S, 2),
        "layers": [(normal(6, d), normal(6)), (normal(2, 6), normal(2))],
        "alpha": torch.tensor(0.05),
    }
    return {**case, **changes}


@pytest.mark.parametrize("steps", [1, 2])
@pytest.mark.parametrize("head", ["cosine", "dot"])
def test_no_rate_is_no_adaptation(head: str, steps: int) -> None:
    case = classifier(head, alpha=torch.tensor(0.0), steps=steps)
    if head == "cosine":
        plain = functional.cosine_logits(case["features"], case["weight"], case["scale"])
    else:
        plain = functional.dot_logits(case["features"], case["weight"], case["bias"])
    torch.testing.assert_close(functional.adapted_logits(**case), plain)


@pytest.mark.parametrize("steps", [1, 3])
@pytest.mark.parametrize("head", ["cosine", "dot"])
def test_equal_rates_per_feature_are_one_rate(head: str, steps: int) -> None:
    one = functional.adapted_logits(**classifier(head, alpha=torch.tensor(0.3), steps=steps))
    many = functional.adapted_logits(**classifier(head, alpha=torch.full((d,), 0.3), steps=steps))
    torch.testing.assert_close(many, one)


def test_equal_rates_per_layer_are_one_rate() -> None:
    one = functional.adapted_mlp(**regressor(alpha=torch.tensor(0.05)))
    many = functional.adapted_mlp(**regressor(alpha=torch.full((2,), 0.05)))
    torch.testing.assert_close(many, one)


@pytest.mark.parametrize("similarity", ["cosine", "euclidean"])
@pytest.mark.parametrize("head", ["cosine", "dot"])
def test_the_order_of_entries_does_not_matter(head: str, similarity: str) -> None:
    case = classifier(head, similarity=similarity)
    order = torch.randperm(S, generator=torch.Generator().manual_seed(1))
    shuffled = {**case, "keys": case["keys"][order], "values": case["values"][order]}
    torch.testing.assert_close(functional.adapted_logits(**shuffled), functional.adapted_logits(**case))


def test_instances_do_not_see_each_other() -> None:
    case = classifier(steps=2)
    whole = functional.adapted_logits(**case)
    alone = functional.adapted_logits(**{**case, "features": case["features"][1:2]})
    torch.testing.assert_close(alone, whole[1:2])


def test_a_number_is_as_good_as_a_tensor() -> None:
    case = classifier(temperature=torch.tensor(0.4))
    numbers = {name: float(case[name]) for name in ("alpha", "scale", "temperature")}
    torch.testing.assert_close(
        functional.adapted_logits(**{**case, **numbers}), functional.adapted_logits(**case)
    )


@pytest.mark.parametrize("similarity", ["cosine", "euclidean"])
def test_an_empty_batch_gives_an_empty_answer(similarity: str) -> None:
    case = classifier(features=torch.zeros(0, d), similarity=similarity)
    assert functional.adapted_logits(**case).shape == (0, C)


# --- memory


class Largest(TorchDispatchMode):
    """Remembers the largest tensor any operation made."""

    def __init__(self) -> None:
        super().__init__()
        self.numel = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for tensor in out if isinstance(out, (tuple, list)) else (out,):
            if isinstance(tensor, Tensor):
                self.numel = max(self.numel, tensor.numel())
        return out


@pytest.mark.parametrize("diagonal", [False, True])
def test_one_step_of_the_cosine_head_makes_no_tensor_of_instances_classes_entries(
    diagonal: bool,
) -> None:
    n = {"B": 6, "S": 200, "C": 11, "d": 7}
    case = with_grad(
        {
            "features": torch.randn(n["B"], n["d"]),
            "keys": torch.randn(n["S"], n["d"]),
            "values": torch.randn(n["S"], n["C"]).softmax(1),
            "weight": torch.randn(n["C"], n["d"]),
            "alpha": torch.rand(n["d"]) if diagonal else torch.tensor(0.1),
        }
    )
    with Largest() as largest:
        functional.adapted_logits(**case, scale=10.0, memory_budget=4000).sum().backward()
    # S×C and S×d are what the dictionary itself has; B×S is the attention
    assert largest.numel <= n["S"] * max(n["B"], n["C"], n["d"])


def test_one_step_of_an_mlp_makes_no_weights_per_instance() -> None:
    width = 40
    case = with_grad(
        regressor(
            layers=[
                (torch.randn(width, d), torch.randn(width)),
                (torch.randn(width, width), torch.randn(width)),
                (torch.randn(2, width), torch.randn(2)),
            ]
        )
    )
    with Largest() as largest:
        functional.adapted_mlp(**case).sum().backward()
    assert largest.numel < B * width * width


@pytest.mark.parametrize("head", ["cosine", "dot"])
def test_several_steps_stay_within_the_budget(head: str) -> None:
    case = with_grad(classifier(head, features=torch.randn(16, d), steps=3))
    with Largest() as largest:
        functional.adapted_logits(**case, memory_budget=1).sum().backward()
    assert largest.numel <= 16 * S  # the attention; of weights and errors, one instance at a time


# --- precision and derivatives


@pytest.mark.parametrize("steps", [1, 2])
@pytest.mark.parametrize("head", ["cosine", "dot", "mlp"])
def test_autocast_gives_nearly_the_same(head: str, steps: int) -> None:
    function = functional.adapted_mlp if head == "mlp" else functional.adapted_logits
    case = with_grad(regressor(steps=steps) if head == "mlp" else classifier(head, steps=steps))
    exact = function(**case)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        rough = function(**case)
    assert rough.dtype == torch.float32
    torch.testing.assert_close(rough, exact, rtol=0.05, atol=0.05 * exact.abs().max().item())
    grads = torch.autograd.grad(rough.sum(), leaves(case))
    assert all(bool(g.isfinite().all()) for g in grads)


def test_autocast_features_are_taken_as_they_come() -> None:
    case = classifier()
    rough = functional.adapted_logits(**{**case, "features": case["features"].bfloat16()})
    torch.testing.assert_close(rough, functional.adapted_logits(**case), rtol=0.1, atol=0.1)


def test_the_contraction_is_its_own_derivative_to_second_order() -> None:
    generator = torch.Generator().manual_seed(0)
    tensors = [
        torch.randn(shape, generator=generator, dtype=torch.float64, requires_grad=True)
        for shape in ((3, 7), (7, 2), (7, 4))
    ]

    def in_small_blocks(*three: Tensor) -> Tensor:
        return contract(*three, plan_for(torch.device("cpu"), 300))

    torch.testing.assert_close(
        in_small_blocks(*tensors), torch.einsum("is,sc,sd->icd", *tensors), rtol=1e-12, atol=1e-12
    )
    assert torch.autograd.gradcheck(in_small_blocks, tensors)
    assert torch.autograd.gradgradcheck(in_small_blocks, tensors)


@pytest.mark.parametrize("frozen", ["features", "keys", "values", "weight"])
def test_gradients_do_not_depend_on_which_are_asked_for(frozen: str) -> None:
    everything = with_grad(classifier())
    functional.adapted_logits(**everything).square().sum().backward()
    some = with_grad(classifier())
    some[frozen] = some[frozen].detach()
    functional.adapted_logits(**some).square().sum().backward()
    for name in {"features", "keys", "values", "weight", "alpha", "scale"} - {frozen}:
        torch.testing.assert_close(some[name].grad, everything[name].grad)


def test_functional_transforms_see_the_same_derivative() -> None:
    case = classifier()
    z = case.pop("features").requires_grad_()

    def logits(features: Tensor) -> Tensor:
        return functional.adapted_logits(features, **case)

    expected = torch.autograd.functional.jacobian(logits, z)
    torch.testing.assert_close(torch.func.jacrev(logits)(z), expected)
