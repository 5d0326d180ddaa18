r"""Labels of the adapted cosine head with only the norms that matter.

The dot product :math:`\langle\hat z_i,\phi_{ic}\rangle` is a few ``B×S×C`` products; the norm
:math:`\|\phi_{ic}\|` costs ``d`` times that. But

.. math::
    \|w_c\|^2 + s_c^2\langle r_{ic}, \hat z_i\rangle^2 \;\le\; \|\phi_{ic}\|^2 \;\le\;
    \|w_c\|^2 + s_c^2\Bigl(\bigl(\textstyle\sum_j \omega_{ij}|E_{jc}|\bigr)^2 - q_{ic}^2\Bigr),
    \qquad s_c = \alpha/\|w_c\|, \quad q_{ic} = \langle u_{ic}, \hat w_c\rangle

holds each logit between two numbers, so the norm is needed only where a class can still win. Where
two logits are equal to rounding, all of them are computed as :func:`mn.functional.adapted_logits`
does, so that the label is that of its arg-max.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from mn.functional import _cosine
from mn.functional._attention import normalize
from mn.functional._contraction import Plan

# Two ways of computing a logit in the same type differ by less than this many units of rounding of
# its largest possible value, |τ|, and of the numbers it is a difference of; two classes nearer to
# each other than that count as tied.
ROUNDING = 16


class Bounds(NamedTuple):
    """What the bounds need of dictionary and head; the same for every instance."""

    sums: Tensor  # (S, 2C): E_jc cos_jc, which give q, and |E_jc|
    errors: Tensor  # Eᵀ (C, S), whose rows are gathered
    norms: Tensor  # ‖w_c‖ (C,)
    directions: Tensor  # ŵ (C, d)
    bounded: bool  # whether every class vector has a direction, without which there is no bound


def bounds(near: _cosine.Neighbors) -> Bounds:
    """The constants of the bounds."""
    with torch.autocast(near.keys.device.type, enabled=False):
        norms, directions, off = _cosine.direction(near.weight)
        E = near.errors
        sums = torch.cat([E * (near.keys @ directions.mT), E.abs()], 1)
    return Bounds(sums, E.mT.contiguous(), norms, directions, not bool(off.any()))


def labels(
    features: Tensor,
    near: _cosine.Neighbors,
    known: Bounds,
    attention: Tensor,
    alpha: Tensor | float,
    steps: int,
    plan: Plan,
    *,
    cosines: Tensor | None = None,
) -> Tensor:
    """arg-max over the classes of the adapted logits: ``(B, d) -> (B,)``.

    ``cosines (B, S)`` between features and keys are used where they are known from the attention.
    """
    exact = steps > 1 or _cosine.is_diagonal(alpha) or plan.low is not None or not known.bounded
    if not exact:
        found, decided = _bounded(features, near, known, attention, alpha, plan, cosines)
        if decided:
            return found
    return _cosine.adapted(features, near, attention, alpha, steps, plan).argmax(1)


def _bounded(
    features: Tensor,
    near: _cosine.Neighbors,
    known: Bounds,
    ω: Tensor,
    alpha: Tensor | float,
    plan: Plan,
    cosines: Tensor | None,
) -> tuple[Tensor, bool]:
    """Labels, and whether all of them are beyond doubt."""
    z, C, n, τ = normalize(features), near.weight.shape[0], known.norms, near.scale
    if cosines is None:
        cosines = z @ near.keys.mT
    s = alpha / n
    q, most = torch.split(ω @ known.sums, C, 1)  # (B, C)
    along = (ω * cosines) @ near.errors - q * (z @ known.directions.mT)  # ⟨r_ic, ẑ_i⟩
    base = z @ near.weight.mT
    dots = τ * (base - s * along)
    low = (n.square() + (s * along).square()).sqrt()
    high = (n.square() + s.square() * (most.square() - q.square()).clamp_min(0)).sqrt()
    high = torch.maximum(low, high)
    least = dots / torch.where(dots > 0, high, low)
    greatest = dots / torch.where(dots > 0, low, high)
    # r is what is left of u, at most ``most`` long, once its part along w is taken away
    doubt = ROUNDING * torch.finfo(z.dtype).eps * abs(float(τ)) * (1 + (s * most / low).abs())
    can_win = greatest + doubt >= (least - doubt).amax(1, keepdim=True)  # (B, C)
    winners = least.argmax(1)
    contested = can_win.sum(1) > 1
    if not bool(contested.any()):
        return winners, True

    rows, classes = (can_win & contested.unsqueeze(1)).nonzero().unbind(1)
    logits = least.new_full(least.shape, -torch.inf)
    size = max(1, plan.block_bytes // (3 * ω.element_size() * ω.shape[1]))
    for i, c in zip(torch.split(rows, size), torch.split(classes, size), strict=True):
        u = (ω[i] * known.errors[c]) @ near.keys  # (pairs, d)
        r = u - (u * known.directions[c]).sum(1, keepdim=True) * known.directions[c]
        dot = τ * (base[i, c] - s[c] * (r * z[i]).sum(1))
        norm = (n[c].square() + s[c].square() * r.square().sum(1)).sqrt()
        logits[i, c] = dot / norm
    best = logits[contested].topk(2, dim=1)
    winners[contested] = best.indices[:, 0]
    gap = best.values[:, 0] - best.values[:, 1]
    return winners, bool((gap > doubt[contested].gather(1, best.indices).sum(1)).all())
