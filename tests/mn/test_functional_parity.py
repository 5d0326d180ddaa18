"""Every fast path against one gradient per instance, in float64, over many cases."""

from __future__ import annotations

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mn import functional
from tests import reference
from tests.mn.parity import Case, assert_same, in_double, run, run_twice

SETTINGS = settings(max_examples=150, deadline=None, derandomize=True)


@st.composite
def classifiers(draw: st.DrawFn, min_features: int = 1) -> tuple[Case, int]:
    """Arguments of ``adapted_logits``, and a memory budget."""
    B, S, C = (draw(st.integers(1, n)) for n in (5, 12, 5))
    d = draw(st.integers(min_features, 6))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**20)))

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    rate = draw(st.sampled_from([0.0, 0.05, 0.5, 3.0]))
    diagonal = draw(st.booleans())
    case: Case = {
        "features": normal(B, d),
        "keys": normal(S, d),
        # the last kind are no probabilities: the step is exact for any values
        "values": draw(
            st.sampled_from(
                [
                    normal(S, C).softmax(1),
                    normal(S, C).mul(10).softmax(1),
                    torch.eye(C, dtype=torch.float64)[torch.arange(S) % C],
                    normal(S, C),
                ]
            )
        ),
        "weight": normal(C, d) * draw(st.sampled_from([0.1, 1.0])),
        "alpha": rate * normal(d).abs() if diagonal else torch.tensor(rate, dtype=torch.float64),
        "similarity": draw(st.sampled_from(["cosine", "euclidean"])),
        "steps": draw(st.integers(1, 3)),
    }
    head = draw(st.sampled_from(["cosine", "dot", "dot without bias"]))
    if head == "cosine":
        case["scale"] = torch.tensor(draw(st.sampled_from([1.0, 10.0])), dtype=torch.float64)
    elif head == "dot":
        case["bias"] = normal(C)
    if draw(st.booleans()):
        case["attention"] = normal(B, S).softmax(1)
    else:
        temperature = draw(st.sampled_from([0.05, 0.2, 1.0]))
        case["temperature"] = torch.tensor(temperature, dtype=torch.float64)
    return case, draw(st.sampled_from([1, 1000, 2**28]))


@st.composite
def regressors(draw: st.DrawFn, min_features: int = 1) -> tuple[Case, int]:
    """Arguments of ``adapted_mlp``, and a memory budget."""
    B, S, out = (draw(st.integers(1, n)) for n in (5, 12, 3))
    d = draw(st.integers(min_features, 5))
    widths = [d, *draw(st.lists(st.integers(1, 6), max_size=3)), out]
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**20)))

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    layers = [(normal(after, before), normal(after)) for before, after in itertools.pairwise(widths)]
    rate = draw(st.sampled_from([0.0, 0.01, 0.1]))
    per_layer = draw(st.booleans())
    case: Case = {
        "inputs": normal(B, d),
        "keys": normal(S, d),
        "values": normal(S, out),
        "layers": layers,
        "alpha": torch.tensor(rate, dtype=torch.float64),
        "activation": draw(st.sampled_from(["relu", "tanh"])),
        "similarity": draw(st.sampled_from(["cosine", "euclidean"])),
        "steps": draw(st.integers(1, 3)),
    }
    if per_layer:
        case["alpha"] = rate * normal(len(layers)).abs()
    if draw(st.booleans()):
        case["attention"] = normal(B, S).softmax(1)
    else:
        case["temperature"] = torch.tensor(draw(st.sampled_from([0.05, 0.2, 1.0])), dtype=torch.float64)
    return case, draw(st.sampled_from([1, 2**28]))


@SETTINGS
@given(classifiers())
def test_adapted_logits_is_the_gradient_step_of_every_instance(drawn: tuple[Case, int]) -> None:
    case, budget = drawn
    fast = run(lambda **call: functional.adapted_logits(**call, memory_budget=budget), case)
    assert_same(fast, run(reference.adapted_logits, case), 1e-9)


@SETTINGS
@given(regressors())
def test_adapted_mlp_is_the_gradient_step_of_every_instance(drawn: tuple[Case, int]) -> None:
    case, budget = drawn
    fast = run(lambda **call: functional.adapted_mlp(**call, memory_budget=budget), case)
    assert_same(fast, run(reference.adapted_mlp, case), 1e-9)


# In one dimension a cosine does not change at all: both ways give rounding, and nothing to compare.
MANY = {"min_features": 2}


@settings(SETTINGS, max_examples=25)
@given(classifiers(**MANY))
def test_second_derivatives_of_adapted_logits(drawn: tuple[Case, int]) -> None:
    case, budget = drawn
    fast = run_twice(lambda **call: functional.adapted_logits(**call, memory_budget=budget), case)
    assert_same(fast, run_twice(reference.adapted_logits, case), 1e-9)


@settings(SETTINGS, max_examples=25)
@given(regressors(**MANY))
def test_second_derivatives_of_adapted_mlp(drawn: tuple[Case, int]) -> None:
    case, budget = drawn
    fast = run_twice(lambda **call: functional.adapted_mlp(**call, memory_budget=budget), case)
    assert_same(fast, run_twice(reference.adapted_mlp, case), 1e-9)


@settings(SETTINGS, max_examples=20)
@given(classifiers())
def test_attend_is_the_softmax_of_similarities(drawn: tuple[Case, int]) -> None:
    case, _ = drawn
    call = {
        "queries": case["features"],
        "keys": case["keys"],
        "similarity": case["similarity"],
        "temperature": case.get("temperature", torch.tensor(0.2, dtype=torch.float64)),
    }
    assert_same(run(functional.attend, call), run(reference.attend, call), 1e-9)


@settings(SETTINGS, max_examples=20)
@given(st.integers(1, 4), st.integers(1, 5), st.sampled_from([(), (1,), (3,), (2, 3), (2, 1, 2)]))
def test_ifilm_is_its_equation(B: int, C: int, space: tuple[int, ...]) -> None:
    generator = torch.Generator().manual_seed(B + 10 * C)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    call = {
        "activations": normal(B, C, *space),
        "keys": normal(4, C),
        "gammas": normal(4, C),
        "betas": normal(4, C),
        "temperature": torch.tensor(0.3, dtype=torch.float64),
    }
    assert_same(run(functional.ifilm, call), run(reference.ifilm, call), 1e-9)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("head", ["cosine", "dot", "mlp"])
def test_float32_is_near_float64(head: str, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float32)

    B, S, C, d = 16, 300, 7, 48
    case: Case = {"keys": normal(S, d), "alpha": torch.tensor(0.05)}
    if head == "mlp":
        case["inputs"], case["values"] = normal(B, d), normal(S, 2)
        case["layers"] = [(normal(32, d) / 7, normal(32)), (normal(2, 32) / 6, normal(2))]
        fast, plain = functional.adapted_mlp, reference.adapted_mlp
    else:
        case["features"], case["values"] = normal(B, d), normal(S, C).mul(10).softmax(1)
        case["weight"] = normal(C, d) / 7
        case.update({"scale": torch.tensor(10.0)} if head == "cosine" else {"bias": normal(C)})
        fast, plain = functional.adapted_logits, reference.adapted_logits
    found = [t.double() for t in run(fast, case)]
    assert_same(found, run(plain, in_double(case)), 1e-5)
