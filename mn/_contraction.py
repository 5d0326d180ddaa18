r"""The one expensive sum of the method, without its ``B×C×S`` intermediate.

.. math:: u_{icd} = \sum_j \omega_{ij} E_{jc} k_{jd}

Autograd on the plain expression would hold ``ω_ij E_jc``, of size ``B×C×S``: 0.5 GB at B=128,
C=100, S=10000, and several times that in backward. Here it is made and used a block at a time, and
made again in backward. The sum is linear in each of its three arguments and so is each of its
derivatives, so the functions below are each other's derivatives and any order works.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

# One block of ω_ij E_jc. Larger ones gain nothing: the block is written, multiplied and dropped,
# and it has to stay in cache between the two.
BLOCK_BYTES = 4 * 2**20


def contract(weights: Tensor, errors: Tensor, keys: Tensor, memory_budget: int) -> Tensor:
    """u from ω ``(B, S)``, E ``(S, C)``, k ``(S, d)``: ``(B, C, d)``.

    Under autocast the products run in its type (the sums in float32), as every matmul there does.
    """
    device = weights.device.type
    low = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else None
    with torch.autocast(device, enabled=False):
        block = min(BLOCK_BYTES, memory_budget)
        u: Tensor = _Contract.apply(weights, errors, keys, block, low)
        return u


def _blocks(weights: Tensor, errors: Tensor, block_bytes: int) -> Iterator[tuple[slice, slice]]:
    """Slices of classes and of entries whose ``B × c × s`` block fits in ``block_bytes``."""
    B, S = weights.shape
    C = errors.shape[1]
    room = max(1, block_bytes // (weights.element_size() * B))  # c·s
    s = min(S, max(room // C, min(room, 512)))
    c = min(C, max(1, room // s))
    for first in range(0, S, s):
        entries = slice(first, min(first + s, S))
        for c0 in range(0, C, c):
            yield slice(c0, min(c0 + c, C)), entries


class _Contract(torch.autograd.Function):
    @staticmethod
    def forward(weights: Tensor, errors: Tensor, keys: Tensor, block: int, low: torch.dtype | None) -> Tensor:
        B, C, d = weights.shape[0], errors.shape[1], keys.shape[1]
        E, k = errors.mT.contiguous(), keys.to(low or keys.dtype)
        u = weights.new_zeros(C, B, d)
        for classes, entries in _blocks(weights, errors, block):
            x = E[classes, None, entries] * weights[None, :, entries]  # (c, B, s)
            part = x.flatten(0, 1).to(k.dtype) @ k[entries]
            u[classes] += part.view(-1, B, d)
        return u.transpose(0, 1)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:  # noqa: ARG004
        weights, errors, keys, ctx.block, ctx.low = inputs
        ctx.save_for_backward(weights, errors, keys)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        return (*_ContractBackward.apply(grad, *ctx.saved_tensors, ctx.block, ctx.low), None, None)


class _ContractBackward(torch.autograd.Function):
    @staticmethod
    def forward(
        grad: Tensor,
        weights: Tensor,
        errors: Tensor,
        keys: Tensor,
        block: int,
        low: torch.dtype | None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        B, d = weights.shape[0], keys.shape[1]
        E, k = errors.mT.contiguous(), keys.to(low or keys.dtype)
        g = grad.transpose(0, 1).contiguous().to(k.dtype)  # (C, B, d)
        for_weights, for_keys = torch.zeros_like(weights), torch.zeros_like(keys)
        for_errors = torch.empty_like(E)
        for classes, entries in _blocks(weights, errors, block):
            g_c = g[classes].reshape(-1, d)  # (c·B, d)
            ω, e = weights[None, :, entries], E[classes, None, entries]
            x = e * ω
            for_keys[entries] += x.flatten(0, 1).mT.to(k.dtype) @ g_c
            dots = (g_c @ k[entries].mT).to(weights.dtype).view(-1, B, ω.shape[-1])  # ⟨g_ic, k_j⟩
            for_errors[classes, entries] = torch.mul(dots, ω, out=x).sum(1)
            for_weights[:, entries] += torch.mul(dots, e, out=x).sum(0)
        return for_weights, for_errors.mT, for_keys

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:  # noqa: ARG004
        *tensors, ctx.block, ctx.low = inputs
        ctx.save_for_backward(*tensors)

    @staticmethod
    def backward(ctx: Any, a: Tensor, b: Tensor, c: Tensor) -> tuple[Tensor | None, ...]:
        # ⟨a, dω⟩ + ⟨b, dE⟩ + ⟨c, dk⟩ = ⟨g, u(a,E,k) + u(ω,b,k) + u(ω,E,c)⟩
        g, ω, E, k = ctx.saved_tensors
        rest = ctx.block, ctx.low
        three = (a, E, k), (ω, b, k), (ω, E, c)
        for_g = sum(_Contract.apply(*t, *rest) for t in three)
        (_, E_a, k_a), (ω_b, _, k_b), (ω_c, E_c, _) = (_ContractBackward.apply(g, *t, *rest) for t in three)
        return for_g, ω_b + ω_c, E_a + E_c, k_a + k_b, None, None
