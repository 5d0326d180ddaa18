"""Comparing a fast path with the plain reference: outputs, and gradients of every tensor."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

Case = dict[str, Any]


def leaves(case: Case) -> list[Tensor]:
    """Every floating-point tensor of a call's arguments, in a fixed order."""
    found: list[Tensor] = []
    for value in case.values():
        for item in value if isinstance(value, list) else [value]:
            found += [t for t in (item if isinstance(item, tuple) else (item,)) if is_leaf(t)]
    return found


def is_leaf(value: object) -> bool:
    return isinstance(value, Tensor) and value.is_floating_point()


def with_grad(case: Case) -> Case:
    """The same call on fresh leaves that record gradients."""

    def fresh(value: Any) -> Any:
        if isinstance(value, (list, tuple)):
            return type(value)(fresh(v) for v in value)
        return value.detach().clone().requires_grad_() if is_leaf(value) else value

    return {name: fresh(value) for name, value in case.items()}


def in_double(case: Case) -> Case:
    """The same call in float64."""

    def lifted(value: Any) -> Any:
        if isinstance(value, (list, tuple)):
            return type(value)(lifted(v) for v in value)
        return value.double() if is_leaf(value) else value

    return {name: lifted(value) for name, value in case.items()}


def run(function: Callable[..., Tensor], case: Case, probe: int = 0) -> list[Tensor]:
    """The output, then the gradients of a random linear functional of it."""
    case = with_grad(case)
    out = function(**case)
    generator = torch.Generator().manual_seed(probe)
    weights = torch.randn(out.shape, generator=generator, dtype=torch.float64).to(out.dtype)
    inputs = leaves(case)
    grads = torch.autograd.grad((out * weights).sum(), inputs, materialize_grads=True)
    return [out.detach(), *grads]


def run_twice(function: Callable[..., Tensor], case: Case) -> list[Tensor]:
    """Gradients of a random linear functional of the gradients."""
    case = with_grad(case)
    out = function(**case)
    inputs = leaves(case)
    generator = torch.Generator().manual_seed(1)

    def probe(t: Tensor) -> Tensor:
        return (t * torch.randn(t.shape, generator=generator, dtype=t.dtype)).sum()

    # squared, so that there is a second derivative also where the output is linear
    first = torch.autograd.grad(probe(out.square()), inputs, create_graph=True, materialize_grads=True)
    total = torch.stack([probe(g) for g in first]).sum()
    return list(torch.autograd.grad(total, inputs, materialize_grads=True))


def assert_same(fast: list[Tensor], plain: list[Tensor], tolerance: float) -> None:
    """Equal relative to the largest entry of each tensor.

    A gradient that is zero but for rounding has no digits to compare: a thousandth of the largest
    entry of all is the least that counts as large.
    """
    overall = max(b.abs().max().item() for b in plain if b.numel())
    for position, (a, b) in enumerate(zip(fast, plain, strict=True)):
        assert a.shape == b.shape
        largest = b.abs().max().item() if b.numel() else 0.0
        error = (a - b).abs().max().item() if b.numel() else 0.0
        assert error <= tolerance * max(largest, 1e-3 * overall, 1e-3), (position, error, largest)
