r"""The method as pure functions: attention over the dictionary, and heads adapted to each instance.

Letters are the paper's. A batch has ``B`` instances with features :math:`z_i` of size ``d``; the
dictionary has ``S`` entries :math:`(k_j, v_j)`; there are ``C`` classes. For every instance the
head :math:`f_\phi` takes one or more gradient steps on the dictionary before it is applied:

.. math::
    \omega_{ij} = \mathrm{softmax}_j(\mathrm{sim}(z_i, k_j)/T), \qquad
    \phi_i = \phi - \alpha \nabla_\phi \sum_j \omega_{ij} L(f_\phi(k_j), v_j)

Nothing here runs a backward pass per instance: the step is in closed form, exact, and
differentiable in every tensor argument, to any order: an outer gradient goes *through* the step.
The closed forms are in ``mn.functional._cosine`` (cosine head) and ``mn.functional._linear`` (dot head, MLP).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from mn.functional import _attention, _checks, _cosine, _linear, _predict
from mn.functional._attention import at_least_float32, normalize
from mn.functional._chunks import DEFAULT_MEMORY_BUDGET
from mn.functional._contraction import plan_for

__all__ = [
    "adapted_logits",
    "adapted_mlp",
    "attend",
    "cosine_logits",
    "dot_logits",
    "ifilm",
    "predict",
]


def attend(
    queries: Tensor,
    keys: Tensor,
    *,
    similarity: str = "cosine",
    temperature: float | Tensor = 0.2,
) -> Tensor:
    r"""How much each entry weighs for each query (paper Eq. for :math:`\omega`).

    .. math:: \omega_{ij} = \mathrm{softmax}_j(\mathrm{sim}(z_i, k_j) / T)

    Args:
        queries: :math:`z`, one row an instance.
        keys: :math:`k`, one row an entry.
        similarity: ``"cosine"``; ``"euclidean"`` for the negative Euclidean distance; ``"rms"`` for
            the same over √d, the root of the mean squared difference: T then means the same for
            inputs of any number of standardised columns.
        temperature: T, above 0.

    Shape:
        ``(B, d), (S, d) -> (B, S)``; rows are positive and sum to 1.

    Example:
        >>> import torch
        >>> keys = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
        >>> attend(torch.tensor([[2.0, 0.0]]), keys, temperature=0.5)
        tensor([[0.8808, 0.1192]])
    """
    _checks.neighbors(queries, keys)
    return _weights(queries, keys, similarity, temperature, None)


def cosine_logits(x: Tensor, weight: Tensor, scale: float | Tensor) -> Tensor:
    r"""The cosine classifier, :math:`\tau \langle \hat x, \hat w_c \rangle`.

    Shape:
        ``(B, d), (C, d) -> (B, C)``

    Example:
        >>> import torch
        >>> cosine_logits(torch.tensor([[3.0, 4.0]]), torch.eye(2), 10.0)
        tensor([[6., 8.]])
    """
    _checks.matrix("x", x)
    _checks.matrix("weight", weight, columns=x.shape[1])
    with torch.autocast(x.device.type, enabled=False):
        x, weight = at_least_float32(x, weight)
        logits: Tensor = scale * (normalize(x) @ normalize(weight).mT)
    return logits


def dot_logits(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    r"""The linear classifier, :math:`\langle x, w_c \rangle + b_c`.

    Shape:
        ``(B, d), (C, d), (C,) -> (B, C)``

    Example:
        >>> import torch
        >>> dot_logits(torch.tensor([[3.0, 4.0]]), torch.eye(2), torch.tensor([0.0, 1.0]))
        tensor([[3., 5.]])
    """
    _checks.matrix("x", x)
    _checks.matrix("weight", weight, columns=x.shape[1])
    _checks.vector("bias", bias, weight.shape[0])
    return torch.nn.functional.linear(x, weight, bias)


def adapted_logits(
    features: Tensor,
    keys: Tensor,
    values: Tensor,
    weight: Tensor,
    *,
    alpha: float | Tensor,
    scale: float | Tensor | None = None,
    bias: Tensor | None = None,
    similarity: str = "cosine",
    temperature: float | Tensor = 0.2,
    steps: int = 1,
    attention: Tensor | None = None,
    memory_budget: int = DEFAULT_MEMORY_BUDGET,
) -> Tensor:
    r"""Logits of a linear or cosine classifier adapted to each instance.

    .. math::
        \phi_i = \phi - \alpha \nabla_\phi \sum_j \omega_{ij} \Bigl(-\sum_c v_{jc} \log
        \mathrm{softmax}(f_\phi(k_j))_c\Bigr), \qquad \mathrm{logits}_i = f_{\phi_i}(z_i)

    Args:
        features: :math:`z`.
        keys: :math:`k`.
        values: :math:`v`, class probabilities.
        weight: one row a class.
        alpha: α, a scalar, or one rate a feature ``(d,)``. With rates per feature the bias of the
            dot head, which belongs to no feature, moves at their mean: equal rates are then the
            same as that one scalar.
        scale: τ; given, the head is the cosine one, :math:`\tau\langle\hat z,\hat w_c\rangle`.
        bias: given, the head is the dot product :math:`\langle z, w_c\rangle + b_c`, and the bias
            is adapted too. Without ``scale`` and ``bias``, a dot product without bias.
        similarity, temperature: see :func:`attend`.
        steps: inner steps. ω is computed once, not per step.
        attention: ω, where it is already known; ``similarity`` and ``temperature`` are then unused.
        memory_budget: bytes that intermediate results may take. One step needs little whatever the
            budget; several are computed in slices of the batch that fit in it.

    Shape:
        features ``(B, d)``, keys ``(S, d)``, values ``(S, C)``, weight ``(C, d)``, bias ``(C,)``,
        attention ``(B, S)`` -> ``(B, C)``

    Example:
        >>> import torch
        >>> z, k, w = torch.randn(4, 8), torch.randn(20, 8), torch.randn(3, 8)
        >>> v = torch.randn(20, 3).softmax(1)
        >>> adapted_logits(z, k, v, w, alpha=torch.tensor(0.05), scale=10.0).shape
        torch.Size([4, 3])
    """
    if scale is not None and bias is not None:
        raise ValueError("expected scale (cosine head) or bias (dot head), got both")
    d = _checks.head(features, keys, values, weight, bias)
    _checks.rates(alpha, {"per feature": d})
    _checks.at_least("steps", steps, 1)
    _checks.at_least("memory_budget", memory_budget, 1)
    features, keys = at_least_float32(features, keys)
    k = normalize(keys) if scale is not None else None
    ω = _weights(features, keys, similarity, temperature, attention, unit_keys=k)
    plan = plan_for(features.device, memory_budget)
    if k is not None and scale is not None:
        cosine = _cosine.neighbors(k, values, weight, scale)
        return _cosine.adapted(features, cosine, ω, alpha, steps, plan)
    network = _linear.classifier(weight, bias, alpha)
    near = _linear.neighbors(network, keys, values)
    return _linear.adapted(features, network, near, ω, steps, plan)


@torch.no_grad()
def predict(
    features: Tensor,
    keys: Tensor,
    values: Tensor,
    weight: Tensor,
    *,
    alpha: float | Tensor,
    scale: float | Tensor | None = None,
    bias: Tensor | None = None,
    similarity: str = "cosine",
    temperature: float | Tensor = 0.2,
    steps: int = 1,
    attention: Tensor | None = None,
    memory_budget: int = DEFAULT_MEMORY_BUDGET,
) -> Tensor:
    r"""Labels: the arg-max of :func:`adapted_logits`, for less work.

    For one step of the cosine head with a scalar α, norms are computed only for the classes whose
    bounds leave them a chance to win (``mn.functional._predict``). Ties, near-ties and every other head are
    decided by the logits themselves. No gradient is recorded.

    Args:
        features, keys, values, weight, alpha, scale, bias, similarity, temperature, steps,
            attention, memory_budget: see :func:`adapted_logits`.

    Shape:
        as :func:`adapted_logits` -> ``(B,)`` whole numbers

    Example:
        >>> import torch
        >>> z, k, w = torch.randn(4, 8), torch.randn(20, 8), torch.randn(3, 8)
        >>> v = torch.randn(20, 3).softmax(1)
        >>> logits = adapted_logits(z, k, v, w, alpha=0.05, scale=10.0)
        >>> bool((predict(z, k, v, w, alpha=0.05, scale=10.0) == logits.argmax(1)).all())
        True
    """
    if scale is None or bias is not None:
        logits = adapted_logits(
            features,
            keys,
            values,
            weight,
            alpha=alpha,
            scale=scale,
            bias=bias,
            similarity=similarity,
            temperature=temperature,
            steps=steps,
            attention=attention,
            memory_budget=memory_budget,
        )
        return logits.argmax(1)
    d = _checks.head(features, keys, values, weight, None)
    _checks.rates(alpha, {"per feature": d})
    _checks.at_least("steps", steps, 1)
    _checks.at_least("memory_budget", memory_budget, 1)
    features, keys = at_least_float32(features, keys)
    k = normalize(keys)
    ω = _weights(features, keys, similarity, temperature, attention, unit_keys=k)
    near = _cosine.neighbors(k, values, weight, scale)
    plan = plan_for(features.device, memory_budget)
    return _predict.labels(features, near, _predict.bounds(near), ω, alpha, steps, plan)


def adapted_mlp(
    inputs: Tensor,
    keys: Tensor,
    values: Tensor,
    layers: Sequence[tuple[Tensor, Tensor]],
    *,
    alpha: float | Tensor,
    activation: str = "relu",
    similarity: str = "cosine",
    temperature: float | Tensor = 0.1,
    steps: int = 1,
    attention: Tensor | None = None,
    memory_budget: int = DEFAULT_MEMORY_BUDGET,
) -> Tensor:
    r"""Outputs of an MLP all of whose layers are adapted to each instance.

    .. math::
        \phi_i = \phi - \alpha \nabla_\phi \sum_j \omega_{ij}
        \tfrac{1}{n_\mathrm{out}} \| f_\phi(k_j) - v_j \|^2, \qquad \mathrm{out}_i = f_{\phi_i}(z_i)

    Args:
        inputs: :math:`z`; the paper uses the input itself for regression.
        keys: :math:`k`.
        values: :math:`v`, targets.
        layers: ``(weight, bias)`` of each layer, first to last, with ``activation`` between them.
        alpha: α, a scalar, or one rate a layer ``(len(layers),)``.
        activation: ``"relu"`` or ``"tanh"``.
        similarity, temperature: see :func:`attend`.
        steps, attention, memory_budget: see :func:`adapted_logits`.

    Shape:
        inputs ``(B, d)``, keys ``(S, d)``, values ``(S, out)``, weights
        ``(width, width before)``, biases ``(width,)``, attention ``(B, S)`` -> ``(B, out)``

    Example:
        >>> import torch
        >>> layers = [(torch.randn(16, 5), torch.zeros(16)), (torch.randn(1, 16), torch.zeros(1))]
        >>> z, k, v = torch.randn(4, 5), torch.randn(20, 5), torch.randn(20, 1)
        >>> adapted_mlp(z, k, v, layers, alpha=torch.tensor(0.01)).shape
        torch.Size([4, 1])
    """
    _checks.mlp(inputs, keys, values, layers)
    _checks.one_of("activation", activation, _checks.ACTIVATIONS)
    _checks.rates(alpha, {"per layer": len(layers)})
    _checks.at_least("steps", steps, 1)
    _checks.at_least("memory_budget", memory_budget, 1)
    ω = _weights(inputs, keys, similarity, temperature, attention)
    (inputs,) = at_least_float32(inputs)
    plan = plan_for(inputs.device, memory_budget)
    network = _linear.mlp(layers, alpha, activation, _linear.squared_error)
    near = _linear.neighbors(network, keys, values)
    return _linear.adapted(inputs, network, near, ω, steps, plan)


def ifilm(
    activations: Tensor,
    keys: Tensor,
    gammas: Tensor,
    betas: Tensor,
    *,
    temperature: float | Tensor,
) -> Tensor:
    r"""Scale and shift of a feature map chosen per instance (iFiLM, paper Sec. 2.3).

    .. math::
        g_i = \mathrm{GlobalAvgPool}(a_i), \quad
        (\hat\gamma_i, \hat\beta_i) = \sum_j \omega(g_i, k_j)(\gamma_j, \beta_j), \quad
        \mathrm{out}_i = (1 + \hat\gamma_i) a_i + \hat\beta_i

    Args:
        activations: :math:`a`, the output of a BatchNorm; channels in dimension 1.
        keys, gammas, betas: one row an entry.
        temperature: T of the cosine attention, above 0.

    Shape:
        activations ``(B, C, ...)``, keys, gammas and betas ``(S, C)`` -> like activations

    Example:
        >>> import torch
        >>> a, k = torch.randn(2, 3, 8, 8), torch.randn(10, 3)
        >>> out = ifilm(a, k, torch.zeros(10, 3), torch.zeros(10, 3), temperature=0.2)
        >>> bool((out == a).all())
        True
    """
    _checks.feature_map(activations, keys, gammas, betas)
    _checks.positive("temperature", temperature)
    return modulate(activations, keys, gammas, betas, 1 / temperature)


def modulate(
    activations: Tensor,
    keys: Tensor,
    gammas: Tensor,
    betas: Tensor,
    inverse_temperature: float | Tensor,
) -> Tensor:
    """Do :func:`ifilm` by 1/T and unchecked: the module, which is one of many, learns 1/T."""
    g = activations.flatten(2).mean(2) if activations.ndim > 2 else activations
    sim = _attention.scores(g, _attention.index(keys, "cosine"), "cosine")
    ω = _attention.softmax(sim, inverse_temperature)  # (B, S)
    shape = g.shape + (1,) * (activations.ndim - 2)
    γ, β = ((ω @ rows).to(activations.dtype).view(shape) for rows in (gammas, betas))
    return torch.addcmul(β, activations, 1 + γ)


def _weights(
    features: Tensor,
    keys: Tensor,
    similarity: str,
    temperature: float | Tensor,
    attention: Tensor | None,
    *,
    unit_keys: Tensor | None = None,
) -> Tensor:
    """ω as given, or computed; from k̂ where the head has normalised the keys already."""
    if attention is not None:
        _checks.matrix("attention", attention, rows=features.shape[0], columns=keys.shape[0])
        return at_least_float32(attention)[0]
    _checks.one_of("similarity", similarity, _checks.SIMILARITIES)
    _checks.positive("temperature", temperature)
    if unit_keys is None or similarity != "cosine":
        unit_keys = _attention.index(keys, similarity)
    return _attention.softmax(_attention.scores(features, unit_keys, similarity), 1 / temperature)
