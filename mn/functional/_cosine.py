r"""The cosine head adapted to each instance (paper Sec. 2; closed form of the inner step).

With :math:`\hat w_c = w_c/\|w_c\|`, :math:`\cos_{jc} = \langle\hat k_j, \hat w_c\rangle` and
:math:`E = \tau(\mathrm{softmax}(\tau\cos) - V)`, one step of the inner loss is

.. math::
    u_{ic} = \sum_j \omega_{ij} E_{jc} \hat k_j, \qquad
    r_{ic} = u_{ic} - \langle u_{ic}, \hat w_c\rangle \hat w_c, \qquad
    \phi_{ic} = w_c - \tfrac{\alpha}{\|w_c\|} r_{ic}

The step is orthogonal to :math:`w_c` for a scalar α, so that
:math:`\|\phi_{ic}\|^2 = \|w_c\|^2 + (\alpha/\|w_c\|)^2 \|r_{ic}\|^2`: a sum of squares, which never
cancels and never turns negative under the root.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from mn.functional._attention import MIN_NORM, at_least_float32, normalize
from mn.functional._chunks import in_chunks
from mn.functional._contraction import Plan, contract


class Neighbors(NamedTuple):
    """What the first step needs of dictionary and head; the same for every instance."""

    keys: Tensor  # k̂ (S, d)
    values: Tensor  # V (S, C)
    errors: Tensor  # E (S, C)
    weight: Tensor  # w (C, d)
    scale: Tensor | float  # τ


def neighbors(k: Tensor, values: Tensor, weight: Tensor, scale: Tensor | float) -> Neighbors:
    """E = ∂L(f_w(k_j), v_j) / ∂cos_jc from k̂, computed once for the whole batch."""
    values, weight = at_least_float32(values, weight)
    with torch.autocast(k.device.type, enabled=False):
        logits = scale * (k @ normalize(weight).mT)
        # Σ_c v_jc is 1 for probabilities. Written out, E is the derivative of −Σ_c v_jc log p_jc
        # for any values, and so are its own derivatives.
        E = scale * (logits.softmax(1) * values.sum(1, keepdim=True) - values)
    return Neighbors(k, values, E, weight, scale)


def adapted(
    features: Tensor,
    near: Neighbors,
    attention: Tensor,
    alpha: Tensor | float,
    steps: int,
    plan: Plan,
) -> Tensor:
    """Logits of each instance under its own weights: ``(B, d) -> (B, C)``."""
    with torch.autocast(features.device.type, enabled=False):
        z = normalize(features)
        if steps == 1 and not is_diagonal(alpha):
            return _one_orthogonal_step(z, near, attention, alpha, plan)
        (S, d), C = near.keys.shape, near.weight.shape[0]
        # a step keeps cosines, softmax, E, ωE and their derivatives, and a few copies of φ_i
        size = z.element_size() * ((8 * C * S * (steps - 1)) + 8 * C * d * steps)
        run = partial(_explicit_steps, near=near, alpha=alpha, steps=steps, plan=plan)
        return in_chunks(run, z, attention, bytes_per_instance=size, memory_budget=plan.budget)


def is_diagonal(alpha: Tensor | float) -> bool:
    """Whether α is one rate a feature."""
    return isinstance(alpha, Tensor) and alpha.ndim == 1


def _one_orthogonal_step(
    z: Tensor, near: Neighbors, attention: Tensor, alpha: Tensor | float, plan: Plan
) -> Tensor:
    w, τ = near.weight, near.scale
    n, w_hat, off = direction(w)
    u = _pull(near, attention, plan)  # (B, C, d)
    q = torch.einsum("bcd,cd->bc", u, w_hat)
    r = u - (q * ~off).unsqueeze(-1) * w_hat
    s = alpha / n
    # ⟨w, r⟩ is zero but for a class vector too short to have a direction
    along = torch.where(off, n * q, 0)
    squared = w.square().sum(1) - 2 * s * along + s.square() * r.square().sum(-1)
    dots = z @ w.mT - s * torch.einsum("bcd,bd->bc", r, z)
    logits: Tensor = τ * dots * squared.clamp_min(MIN_NORM**2).rsqrt()
    return logits


def _explicit_steps(
    z: Tensor, attention: Tensor, *, near: Neighbors, alpha: Tensor | float, steps: int, plan: Plan
) -> Tensor:
    """Any α and any number of steps, with φ_i held as one ``(B, C, d)`` tensor."""
    k, V, _, w, τ = near
    φ = _moved(w, _pull(near, attention, plan), alpha)
    for _ in range(steps - 1):
        (B, C, _), S = φ.shape, k.shape[0]
        cos = (normalize(φ).flatten(0, 1) @ k.mT).view(B, C, S)
        E_i = τ * ((τ * cos).softmax(1) * V.sum(1) - V.mT)  # (B, C, S)
        x, low = (attention.unsqueeze(1) * E_i).flatten(0, 1), plan.low or k.dtype
        u = (x.to(low) @ k.to(low)).to(k.dtype).view_as(φ)
        φ = _moved(φ, u, alpha)
    logits: Tensor = τ * torch.einsum("bcd,bd->bc", normalize(φ), z)
    return logits


def _pull(near: Neighbors, attention: Tensor, plan: Plan) -> Tensor:
    """u_ic = Σ_j ω_ij E_jc k̂_j: ``(B, C, d)``.

    E_jc sums to zero over the classes, whatever the values, so the last class needs no product.
    """
    u = contract(attention, near.errors[:, :-1], near.keys, plan)
    return torch.cat([u, -u.sum(1, keepdim=True)], 1)


def _moved(φ: Tensor, u: Tensor, alpha: Tensor | float) -> Tensor:
    """φ − α/‖φ‖ (u − ⟨u, φ̂⟩ φ̂), for φ ``(C, d)`` or ``(B, C, d)``, α ``()`` or ``(d,)``."""
    n, φ_hat, off = direction(φ)
    q = (u * φ_hat).sum(-1) * ~off
    r = u - q.unsqueeze(-1) * φ_hat
    return φ - alpha * r / n.unsqueeze(-1)


def direction(w: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """‖w_c‖ (floored), ŵ_c, and which rows lie below the floor.

    Below it, ŵ = w / 1e-6 is linear in w, so the step has nothing to project away there.
    """
    n = torch.linalg.vector_norm(w, dim=-1)
    return n.clamp_min(MIN_NORM), normalize(w), n <= MIN_NORM
