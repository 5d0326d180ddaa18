"""Labels without most norms are the labels of the logits."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mn import functional
from mn.functional import _cosine
from tests.mn.parity import Case

SETTINGS = settings(max_examples=150, deadline=None, derandomize=True)


def case_of(generator: torch.Generator, sizes: tuple[int, int, int, int], **changes: Any) -> Case:
    B, S, C, d = sizes

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator)

    case: Case = {
        "features": normal(B, d),
        "keys": normal(S, d),
        "values": normal(S, C).mul(5).softmax(1),
        "weight": normal(C, d),
        "alpha": 0.3,
        "scale": 10.0,
    }
    return {**case, **changes}


@SETTINGS
@given(
    seed=st.integers(0, 2**20),
    sizes=st.tuples(*(st.integers(1, n) for n in (30, 40, 12, 10))),
    alpha=st.sampled_from([0.0, 0.05, 1.0, 30.0, 1000.0, -0.3]),
    scale=st.sampled_from([10.0, 0.1, -3.0]),
    length=st.sampled_from([1e-3, 1.0, 50.0]),
    twins=st.booleans(),
    dtype=st.sampled_from([torch.float32, torch.float64]),
)
def test_labels_are_the_arg_max_of_the_logits(
    seed: int,
    sizes: tuple[int, int, int, int],
    alpha: float,
    scale: float,
    length: float,
    twins: bool,
    dtype: torch.dtype,
) -> None:
    case = case_of(torch.Generator().manual_seed(seed), sizes, alpha=alpha, scale=scale)
    case["weight"] *= length
    if twins:  # two classes that nothing tells apart: exact ties everywhere
        case["weight"][-1] = case["weight"][0]
        case["values"][:, -1] = case["values"][:, 0]
    for name in ("features", "keys", "values", "weight"):
        case[name] = case[name].to(dtype)
    logits = functional.adapted_logits(**case)
    assert torch.equal(functional.predict(**case), logits.argmax(1))


@pytest.mark.parametrize(
    "change",
    [
        {"steps": 2},
        {"alpha": torch.rand(6, generator=torch.Generator().manual_seed(1))},
        {"scale": None},
        {"scale": None, "bias": torch.ones(4)},
        {"similarity": "euclidean"},
        {"weight": torch.zeros(4, 6)},
        {"features": torch.zeros(8, 6)},
        {"memory_budget": 1},
    ],
    ids=str,
)
def test_every_other_head_gives_the_arg_max_too(change: dict[str, Any]) -> None:
    case = case_of(torch.Generator().manual_seed(0), (8, 20, 4, 6), **change)
    assert torch.equal(functional.predict(**case), functional.adapted_logits(**case).argmax(1))


def test_autocast_labels_are_those_of_the_autocast_logits() -> None:
    case = case_of(torch.Generator().manual_seed(0), (40, 50, 6, 8))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(functional.predict(**case), functional.adapted_logits(**case).argmax(1))


def test_clear_winners_need_no_logits(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    exact = _cosine.adapted

    def counted(*args: Any) -> torch.Tensor:
        calls.append(args)
        return exact(*args)

    monkeypatch.setattr(_cosine, "adapted", counted)
    case = case_of(torch.Generator().manual_seed(0), (64, 50, 10, 16))
    functional.predict(**case)
    assert calls == []
    case["weight"][1] = case["weight"][0]
    case["values"][:, 1] = case["values"][:, 0]
    functional.predict(**case)
    assert len(calls) == 1
