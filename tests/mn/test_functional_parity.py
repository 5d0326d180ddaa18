"""Every fast path against one gradient per instance, in float64, over many cases."""

from __future__ import annotations

import itertools

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mn import functional
from tests import reference
from tests.mn.parity import Case, assert_same, run

SETTINGS = settings(max_examples=60, deadline=None, derandomize=True)


@st.composite
def classifiers(draw: st.DrawFn) -> tuple[Case, int]:
    """Arguments of ``adapted_logits``, and a memory budget."""
    B, S, C, d = (draw(st.integers(1, n)) for n in (5, 12, 5, 6))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**20)))

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    rate = draw(st.sampled_from([0.0, 0.05, 0.5, 3.0]))
    diagonal = draw(st.booleans())
    case: Case = {
        "features": normal(B, d),
        "keys": normal(S, d),
        "values": normal(S, C).mul(draw(st.sampled_from([1.0, 10.0]))).softmax(1),
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
def regressors(draw: st.DrawFn) -> tuple[Case, int]:
    """Arguments of ``adapted_mlp``, and a memory budget."""
    B, S, d, out = (draw(st.integers(1, n)) for n in (5, 12, 5, 3))
    widths = [d, *draw(st.lists(st.integers(1, 6), max_size=3)), out]
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**20)))

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    layers = [
        (normal(after, before), normal(after)) for before, after in itertools.pairwise(widths)
    ]
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
        case["temperature"] = torch.tensor(
            draw(st.sampled_from([0.05, 0.2, 1.0])), dtype=torch.float64
        )
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
