r"""The one expensive sum of the method, without its ``B×C×S`` intermediate.

.. math:: u_{icd} = \sum_j \omega_{ij} E_{jc} k_{jd}

Autograd on the plain expression would hold ``ω_ij E_jc``, of size ``B×C×S``: 0.5 GB at B=128,
C=100, S=10000, and several times that in backward. Here it is made and used a block at a time, and
made again in backward. The sum is linear in each of its three arguments and so is each of its
derivatives, so the two functions below are each other's derivatives, to any order.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

# One block of ω_ij E_jc on a CPU. It is written, multiplied and written over by the next, and has
# to stay in cache in between; with fewer entries than these, the matmul gets slower instead.
CPU_BLOCK_BYTES = 5 * 2**19
BLOCK_ENTRIES = 512


class Plan(NamedTuple):
    """How to run: the memory to use, and the type of large products under autocast."""

    budget: int
    block_bytes: int
    low: torch.dtype | None


def plan_for(device: torch.device, memory_budget: int) -> Plan:
    """The plan for this device in the autocast state of the caller."""
    low = torch.get_autocast_dtype(device.type) if torch.is_autocast_enabled(device.type) else None
    block = memory_budget // 4  # backward holds three blocks at a time
    return Plan(memory_budget, min(block, CPU_BLOCK_BYTES) if device.type == "cpu" else block, low)


def contract(weights: Tensor, errors: Tensor, keys: Tensor, plan: Plan) -> Tensor:
    """u from ω ``(B, S)``, E ``(S, C)``, k ``(S, d)``: ``(B, C, d)``.

    The products run in ``plan.low`` if there is one, their sums in the type of the arguments.
    """
    with torch.autocast(weights.device.type, enabled=False):
        u: Tensor = _Contract.apply(weights, errors, keys, plan)
    return u


class _Contract(torch.autograd.Function):
    @staticmethod
    def forward(weights: Tensor, errors: Tensor, keys: Tensor, plan: Plan) -> Tensor:
        B, C, d = weights.shape[0], errors.shape[1], keys.shape[1]
        E, k = errors.mT.contiguous(), keys.to(plan.low or keys.dtype)
        u = weights.new_zeros(C * B, d)
        buffer = weights.new_empty(0)
        for classes, entries in _blocks(B, C, keys.shape[0], weights.element_size(), plan):
            x = _product(E[classes, None, entries], weights[:, entries], buffer)  # (c, B, s)
            rows = u[classes.start * B : classes.stop * B]
            _add_matmul(rows, x.flatten(0, 1), k[entries])
        return u.view(C, B, d).transpose(0, 1)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:  # noqa: ARG004
        *tensors, ctx.plan = inputs
        ctx.save_for_backward(*tensors)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        need = tuple(ctx.needs_input_grad[:3])
        return (*_Derivatives.apply(grad, *ctx.saved_tensors, need, ctx.plan), None)

    @staticmethod
    def vmap(info: Any, in_dims: Any, *inputs: Any) -> tuple[Tensor, int]:  # noqa: ARG004
        return torch.vmap(_plain, in_dims[:3])(*inputs[:3]), 0


class _Derivatives(torch.autograd.Function):
    """Of ⟨grad, u⟩ with respect to ω, E and k; zeros for the ones nobody needs."""

    @staticmethod
    def forward(
        grad: Tensor,
        weights: Tensor,
        errors: Tensor,
        keys: Tensor,
        need: tuple[bool, bool, bool],
        plan: Plan,
    ) -> tuple[Tensor, Tensor, Tensor]:
        B, C, d = grad.shape
        E, k = errors.mT.contiguous(), keys.to(plan.low or keys.dtype)
        g = grad.transpose(0, 1).reshape(C * B, d).to(k.dtype)
        for_weights, for_errors, for_keys = (torch.zeros_like(t) for t in (weights, E, keys))
        buffer, dots_buffer = weights.new_empty(0), weights.new_empty(0)
        for classes, entries in _blocks(B, C, keys.shape[0], weights.element_size(), plan):
            g_c = g[classes.start * B : classes.stop * B]  # (c·B, d)
            ω, e = weights[:, entries], E[classes, None, entries]
            if need[2]:
                x = _product(e, ω, buffer)
                _add_matmul(for_keys[entries], x.flatten(0, 1).mT, g_c)
            if need[0] or need[1]:
                dots = _matmul(g_c, k[entries].mT, dots_buffer)  # ⟨g_ic, k_j⟩
                dots = dots.view(-1, B, ω.shape[1])
                for_errors[classes, entries] = _product(dots, ω, buffer).sum(1)
                for one, e_one in zip(dots, e, strict=True):
                    for_weights[:, entries].addcmul_(one, e_one)
        return for_weights, for_errors.mT, for_keys

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:  # noqa: ARG004
        *tensors, _, ctx.plan = inputs
        ctx.save_for_backward(*tensors)

    @staticmethod
    def backward(ctx: Any, a: Tensor, b: Tensor, c: Tensor) -> tuple[Tensor | None, ...]:
        # ⟨a, dω⟩ + ⟨b, dE⟩ + ⟨c, dk⟩ = ⟨g, u(a,E,k) + u(ω,b,k) + u(ω,E,c)⟩
        g, ω, E, k = ctx.saved_tensors
        three = (a, E, k), (ω, b, k), (ω, E, c)
        for_g = sum(_Contract.apply(*terms, ctx.plan) for terms in three)
        _, E_a, k_a = _Derivatives.apply(g, *three[0], (False, True, True), ctx.plan)
        ω_b, _, k_b = _Derivatives.apply(g, *three[1], (True, False, True), ctx.plan)
        ω_c, E_c, _ = _Derivatives.apply(g, *three[2], (True, True, False), ctx.plan)
        return for_g, ω_b + ω_c, E_a + E_c, k_a + k_b, None, None

    @staticmethod
    def vmap(info: Any, in_dims: Any, *inputs: Any) -> Any:  # noqa: ARG004
        return torch.vmap(_plain_derivatives, in_dims[:4])(*inputs[:4]), (0, 0, 0)


def _blocks(B: int, C: int, S: int, element_size: int, plan: Plan) -> Iterator[tuple[slice, slice]]:
    """Slices of classes and of entries whose ``c × B × s`` block fits the plan."""
    if B == 0 or C == 0:
        return
    room = max(1, plan.block_bytes // (element_size * B))  # c·s
    s = min(S, max(room // C, min(room, BLOCK_ENTRIES)))
    c = min(C, max(1, room // s))
    for j in range(0, S, s):
        for c0 in range(0, C, c):
            yield slice(c0, min(c0 + c, C)), slice(j, min(j + s, S))


def _product(a: Tensor, b: Tensor, buffer: Tensor) -> Tensor:
    """``(c, B, s)`` a·b in memory used again: fresh pages cost as much as the product."""
    c, s = a.shape[0], a.shape[2]
    B = max(a.shape[1], b.shape[-2])
    return torch.mul(a, b, out=buffer.resize_(c * B * s).view(c, B, s))


def _matmul(a: Tensor, b: Tensor, buffer: Tensor) -> Tensor:
    shape = a.shape[0], b.shape[1]
    if a.dtype != buffer.dtype:
        return (a @ b).to(buffer.dtype)
    return torch.mm(a, b, out=buffer.resize_(shape[0] * shape[1]).view(shape))


def _add_matmul(out: Tensor, a: Tensor, b: Tensor) -> None:
    """out += a @ b, with the sum in ``out``'s type whatever that of the product."""
    if b.dtype == out.dtype:
        out.addmm_(a, b)
    else:
        out += a.to(b.dtype) @ b


def _plain(weights: Tensor, errors: Tensor, keys: Tensor) -> Tensor:
    return torch.einsum("is,sc,sd->icd", weights, errors, keys)


def _plain_derivatives(
    grad: Tensor, weights: Tensor, errors: Tensor, keys: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    return (
        torch.einsum("icd,sc,sd->is", grad, errors, keys),
        torch.einsum("icd,is,sd->sc", grad, weights, keys),
        torch.einsum("icd,is,sc->sd", grad, weights, errors),
    )
