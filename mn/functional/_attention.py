"""Similarity and attention ω(z, k): what decides how much each dictionary entry weighs."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

# Norms are floored at 1e-6, as TensorFlow's l2_normalize does: a zero vector stays zero, and the
# derivative there is 1/1e-6 instead of a division by zero.
MIN_NORM = 1e-6


def normalize(x: Tensor) -> Tensor:
    """x̂ = x / ‖x‖ over the last dimension; zero stays zero."""
    unit: Tensor = _Normalize.apply(x)
    return unit


class _Normalize(torch.autograd.Function):
    """By hand, because autograd's own backward pass takes three times as many passes over x."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor) -> Tensor:
        n: Tensor = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
        return x / n.clamp_min(MIN_NORM)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs, output)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        x, unit = ctx.saved_tensors
        n: Tensor = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
        # below the floor x̂ is linear in x, and there is nothing to project away
        along = torch.where(n > MIN_NORM, (grad * unit).sum(-1, keepdim=True), 0)
        return torch.addcmul(grad, unit, along, value=-1) / n.clamp_min(MIN_NORM)


def index(keys: Tensor, similarity: str) -> Tensor:
    """What of the keys the similarity needs: k̂ for cosine, k for the distance."""
    (keys,) = at_least_float32(keys)
    return normalize(keys) if similarity == "cosine" else keys


def scores(queries: Tensor, indexed: Tensor, similarity: str) -> Tensor:
    """sim(z_i, k_j): ``(B, d), (S, d) -> (B, S)``, always in at least float32.

    A bf16 similarity divided by T = 0.2 is wrong by 2 %, so autocast is off here; the work is one
    ``B×S×d`` product.
    """
    with torch.autocast(queries.device.type, enabled=False):
        (queries,) = at_least_float32(queries)
        if similarity == "cosine":
            return normalize(queries) @ indexed.mT
        distances = _distances(queries, indexed)
        return -distances if similarity == "euclidean" else distances * -(queries.shape[1] ** -0.5)


def _distances(z: Tensor, k: Tensor) -> Tensor:
    """‖z_i − k_j‖: ``(B, d), (S, d) -> (B, S)``. Its derivative at distance zero is zero."""
    if z.device.type == "cpu" and z.dtype == k.dtype == torch.float32:
        distances: Tensor = _Distances.apply(z, k)
        return distances
    return torch.cdist(z, k, compute_mode="donot_use_mm_for_euclid_dist")


class _Distances(torch.autograd.Function):
    """By matrix products: on a CPU cdist's loops take as long as all of an adapted MLP.

    In float32, ‖z‖² + ‖k‖² − 2⟨z,k⟩ would lose half the digits of a small distance. In float64 the products
    of float32 numbers are exact, and what their sums lose is below float32's own rounding.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(z: Tensor, k: Tensor) -> Tensor:
        z, k = z.double(), k.double()
        lengths = z.square().sum(-1, keepdim=True) + k.square().sum(-1).unsqueeze(-2)
        # the root before float32, which has no room for the square of a far input's distance
        return torch.addmm(lengths, z, k.mT, alpha=-2).clamp_min_(0).sqrt_().float()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs, output)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        z, k, distances = (saved.double() for saved in ctx.saved_tensors)
        pull = torch.where(distances > 0, grad / distances, 0)  # (B, S)
        to_z = pull.sum(-1, keepdim=True) * z - pull @ k
        to_k = pull.sum(-2).unsqueeze(-1) * k - pull.mT @ z
        return to_z.float(), to_k.float()


def softmax(sim: Tensor, inverse_temperature: float | Tensor, *, without: Tensor | None = None) -> Tensor:
    """ω_ij = softmax_j(sim_ij / T); ``without (B, S)`` marks entries an instance does not see."""
    sim = sim * inverse_temperature
    if without is not None:
        sim = sim.masked_fill(without, float("-inf"))
    return sim.softmax(-1)


def at_least_float32(*tensors: Tensor) -> tuple[Tensor, ...]:
    """Lift half-precision tensors (an autocast backbone gives them) to float32."""
    return tuple(t.float() if t.dtype in (torch.bfloat16, torch.float16) else t for t in tensors)
