r"""Linear layers adapted to each instance: the dot head, and every layer of an MLP.

Before the first step all instances share φ, so the activation :math:`a_j` that key `j` sends into a
layer and the error :math:`\delta_j` that comes back to its output are computed once for the batch.
The adapted layer is then attention with keys :math:`a_j` and values :math:`\delta_j`:

.. math:: W_i h_i + b_i = W h_i + b - \alpha \sum_j \omega_{ij}(\langle a_j, h_i\rangle + 1)\delta_j

Two products of size ``B×S``, and nothing of the size of ``B`` networks. The same form serves the
last of several steps; the ones before it hold their weights as one ``(B, out, in)`` tensor a layer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from mn.functional._attention import at_least_float32
from mn.functional._chunks import in_chunks
from mn.functional._contraction import Plan, contract
from mn.functional._product import by_onednn, product

Layer = tuple[Tensor, "Tensor | None"]  # weight (out, in), bias (out,); or (B, out, in), (B, out)
Rate = tuple["Tensor | float", "Tensor | float"]  # of the weight: () or (in,); of the bias: ()
Error = Callable[[Tensor, Tensor], Tensor]  # ∂L/∂output from (output, value)


def cross_entropy_error(logits: Tensor, values: Tensor) -> Tensor:
    """Of −Σ_c v_c log p_c; Σ_c v_c, 1 for probabilities, makes it exact for any values."""
    return logits.softmax(-1) * values.sum(-1, keepdim=True) - values


def squared_error(outputs: Tensor, values: Tensor) -> Tensor:
    """Of (f − v)² averaged over the outputs."""
    return (outputs - values) * (2 / values.shape[-1])


class Network(NamedTuple):
    """A stack of linear layers, the rates at which they move, and the loss they move on."""

    layers: Sequence[Layer]
    rates: Sequence[Rate]
    activation: str  # between layers
    error: Error


def classifier(weight: Tensor, bias: Tensor | None, alpha: Tensor | float) -> Network:
    """The dot head: one layer and cross entropy."""
    # a rate per feature leaves out the bias, which belongs to none: it moves at their mean
    diagonal = isinstance(alpha, Tensor) and alpha.ndim == 1
    rate: Rate = (alpha, alpha.mean() if diagonal else alpha)  # type: ignore[union-attr]
    return Network([_lifted((weight, bias))], [rate], "relu", cross_entropy_error)


def mlp(layers: Sequence[Layer], alpha: Tensor | float, activation: str, error: Error) -> Network:
    """An MLP; α is one rate, or one a layer."""
    if isinstance(alpha, Tensor) and alpha.ndim == 1:
        rates: list[Rate] = [(a, a) for a in alpha.unbind()]
    else:
        rates = [(alpha, alpha)] * len(layers)
    return Network([_lifted(layer) for layer in layers], rates, activation, error)


class Neighbors(NamedTuple):
    """What one step needs of dictionary and network: per layer, ``a`` and ``δ`` of every key."""

    inputs: list[Tensor]  # a (S, in), or (B, S, in) once the weights differ per instance
    errors: list[Tensor]  # δ (S, out), or (B, S, out)
    values: Tensor  # v (S, out), for the steps after this one


def neighbors(network: Network, keys: Tensor, values: Tensor) -> Neighbors:
    """One forward and one backward pass of the keys, written out for autograd to go through."""
    layers, _, activation, error = network
    keys, values = at_least_float32(keys, values)
    # f(k_j) − v_j is a difference of near numbers: never in half precision
    with torch.autocast(keys.device.type, enabled=False):
        inputs, h = [], keys
        for depth, layer in enumerate(layers):
            inputs.append(h)
            h = _linear(h, layer)
            if depth < len(layers) - 1:
                h = _activate(h, activation)
        δ = error(h, values)
        errors = [δ]
        for (W, _), a in zip(reversed(layers[1:]), reversed(inputs[1:]), strict=True):
            δ = product(δ, W) if W.ndim == 2 else δ @ W
            # At a = 0 the derivative of relu is 0, as in autograd. Its own operator, because that of
            # torch.where sums over a zero that nobody asked for, which is a sixth of a training step.
            relu = activation == "relu"
            δ = torch.ops.aten.threshold_backward(δ, a.detach(), 0) if relu else δ * (1 - a.square())
            errors.append(δ)
    return Neighbors(inputs, errors[::-1], values)


def adapted(
    features: Tensor,
    network: Network,
    near: Neighbors,
    attention: Tensor,
    steps: int,
    plan: Plan,
) -> Tensor:
    """Outputs of each instance under its own weights: ``(B, in) -> (B, out)``."""
    if steps == 1:
        return _last_step(features, attention, network, near)
    weights = sum(W.numel() for W, _ in network.layers)
    widths = sum(sum(W.shape) for W, _ in network.layers)
    # weights, their gradient and their sum for every step; activations and errors of every key
    numbers = (steps - 1) * (3 * weights + 4 * attention.shape[1] * widths)

    def run(h: Tensor, ω: Tensor) -> Tensor:
        own, here = network, near
        for _ in range(steps - 1):
            own = _moved(own, ω, here, plan)
            here = neighbors(own, near.inputs[0], near.values)
        return _last_step(h, ω, own, here)

    size = features.element_size() * numbers
    return in_chunks(run, features, attention, bytes_per_instance=size, memory_budget=plan.budget)


def _last_step(h: Tensor, ω: Tensor, network: Network, near: Neighbors) -> Tensor:
    """The adapted network applied to ``h (B, in)`` without its adapted weights."""
    layers, rates, activation, _ = network
    if not by_onednn(h, ω):
        ω = ω.mT.contiguous().mT  # the way the products lie that it meets
    parts = zip(layers, near.inputs, near.errors, rates, strict=True)
    for depth, (layer, a, δ, rate) in enumerate(parts):
        scores = _rows(h * rate[0], a)  # (B, S)
        if layer[1] is not None:
            scores = scores + rate[1]
        h = _own_linear(h, layer) - _weighted(ω * scores, δ)
        if depth < len(layers) - 1:
            h = _activate(h, activation)
    return h


def _moved(network: Network, ω: Tensor, near: Neighbors, plan: Plan) -> Network:
    """φ_i − α ∇L_i(φ_i) as ``(B, out, in)`` weights."""
    moved: list[Layer] = []
    parts = zip(network.layers, near.inputs, near.errors, network.rates, strict=True)
    for (W, b), a, δ, rate in parts:
        shared = δ.ndim == 2
        step = contract(ω, δ, a, plan) if shared else (ω.unsqueeze(-1) * δ).mT @ a
        own_bias = None if b is None else b - rate[1] * _weighted(ω, δ)
        moved.append((W - rate[0] * step, own_bias))
    return network._replace(layers=moved)


def _lifted(layer: Layer) -> Layer:
    """A layer in at least float32."""
    W, b = layer
    return at_least_float32(W)[0], None if b is None else at_least_float32(b)[0]


def _linear(a: Tensor, layer: Layer) -> Tensor:
    """Keys through a layer: ``(S, in)`` or ``(B, S, in)`` -> ``(S, out)`` or ``(B, S, out)``."""
    W, b = layer
    if W.ndim == 2:
        return product(a, W.mT, b)
    out = a @ W.mT
    return out if b is None else out + b.unsqueeze(-2)


def _own_linear(h: Tensor, layer: Layer) -> Tensor:
    """Each instance through its own layer (or the shared one): ``(B, in) -> (B, out)``."""
    W, b = layer
    if W.ndim == 2:
        return product(h, W.mT, b)
    out = (W @ h.unsqueeze(-1)).squeeze(-1)
    return out if b is None else out + b


def _rows(h: Tensor, a: Tensor) -> Tensor:
    """⟨a_j, h_i⟩: ``(B, S)``."""
    return product(h, a.mT) if a.ndim == 2 else (a @ h.unsqueeze(-1)).squeeze(-1)


def _weighted(ω: Tensor, δ: Tensor) -> Tensor:
    """Σ_j ω_ij δ_j: ``(B, out)``."""
    return product(ω, δ) if δ.ndim == 2 else (ω.unsqueeze(1) @ δ).squeeze(1)


def _activate(h: Tensor, activation: str) -> Tensor:
    return h.relu() if activation == "relu" else h.tanh()
