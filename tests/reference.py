"""The method as its definition says it: one gradient per instance, by ``torch.func``.

Slow and plain on purpose. Every fast path in ``mn`` is compared with these functions, and ``bench``
times against them; nothing in ``mn`` imports them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.func import grad, vmap

Params = dict[str, Tensor]
Apply = Callable[[Params, Tensor], Tensor]

EPS = 1e-6


def unit(x: Tensor) -> Tensor:
    """x / max(‖x‖, 1e-6)."""
    return x / x.square().sum(-1, keepdim=True).clamp_min(EPS**2).sqrt()


def attend(queries: Tensor, keys: Tensor, similarity: str, temperature: float | Tensor) -> Tensor:
    if similarity == "cosine":
        scores = unit(queries) @ unit(keys).T
    else:
        scores = -torch.linalg.vector_norm(queries[:, None] - keys[None], dim=-1)
    return (scores / temperature).softmax(1)


def cross_entropy(outputs: Tensor, values: Tensor) -> Tensor:
    """(S, C) -> (S,)"""
    return -(values * outputs.log_softmax(-1)).sum(-1)


def squared_error(outputs: Tensor, values: Tensor) -> Tensor:
    return (outputs - values).square().mean(-1)


def adapt(
    apply: Apply,
    params: Params,
    rates: Params,
    loss: Callable[[Tensor, Tensor], Tensor],
    features: Tensor,
    keys: Tensor,
    values: Tensor,
    attention: Tensor,
    steps: int,
) -> Tensor:
    """φ_i = φ − α ∇Σ_j ω_ij L(f_φ(k_j), v_j), ``steps`` times, then f_φi(z_i); vmapped over i."""

    def inner_loss(own: Params, ω: Tensor) -> Tensor:
        return (ω * loss(apply(own, keys), values)).sum()

    def one(z: Tensor, ω: Tensor) -> Tensor:
        own = params
        for _ in range(steps):
            slope = grad(inner_loss)(own, ω)
            own = {name: own[name] - rates[name] * slope[name] for name in own}
        return apply(own, z.unsqueeze(0)).squeeze(0)

    return vmap(one)(features, attention)


def adapted_logits(
    features: Tensor,
    keys: Tensor,
    values: Tensor,
    weight: Tensor,
    *,
    alpha: Tensor,
    scale: float | Tensor | None = None,
    bias: Tensor | None = None,
    similarity: str = "cosine",
    temperature: float | Tensor = 0.2,
    steps: int = 1,
    attention: Tensor | None = None,
) -> Tensor:
    if attention is None:
        attention = attend(features, keys, similarity, temperature)
    params, rates = {"weight": weight}, {"weight": alpha}
    if bias is not None:
        params["bias"] = bias
        rates["bias"] = alpha.mean()

    def apply(own: Params, x: Tensor) -> Tensor:
        if scale is not None:
            return scale * (unit(x) @ unit(own["weight"]).T)
        return F.linear(x, own["weight"], own.get("bias"))

    return adapt(apply, params, rates, cross_entropy, features, keys, values, attention, steps)


def adapted_mlp(
    inputs: Tensor,
    keys: Tensor,
    values: Tensor,
    layers: Sequence[tuple[Tensor, Tensor]],
    *,
    alpha: Tensor,
    activation: str = "relu",
    similarity: str = "cosine",
    temperature: float | Tensor = 0.1,
    steps: int = 1,
    attention: Tensor | None = None,
) -> Tensor:
    if attention is None:
        attention = attend(inputs, keys, similarity, temperature)
    params, rates = {}, {}
    for depth, (weight, bias) in enumerate(layers):
        params[f"w{depth}"], params[f"b{depth}"] = weight, bias
        rate = alpha[depth] if alpha.ndim else alpha
        rates[f"w{depth}"], rates[f"b{depth}"] = rate, rate
    between = {"relu": torch.relu, "tanh": torch.tanh}[activation]

    def apply(own: Params, x: Tensor) -> Tensor:
        for depth in range(len(layers)):
            x = F.linear(x, own[f"w{depth}"], own[f"b{depth}"])
            if depth < len(layers) - 1:
                x = between(x)
        return x

    return adapt(apply, params, rates, squared_error, inputs, keys, values, attention, steps)


def ifilm(activations: Tensor, keys: Tensor, gammas: Tensor, betas: Tensor, *, temperature: Tensor) -> Tensor:
    rows = []
    for a in activations:
        g = a.flatten(1).mean(1) if a.ndim > 1 else a
        ω = attend(g.unsqueeze(0), keys, "cosine", temperature).squeeze(0)
        γ, β = (ω @ gammas, ω @ betas)
        across = (-1,) + (1,) * (a.ndim - 1)
        rows.append((1 + γ.view(across)) * a + β.view(across))
    return torch.stack(rows)
