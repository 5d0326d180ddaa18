"""Heads f_φ: each gives its plain output, and its output adapted to every instance."""

from __future__ import annotations

import itertools
import math
from abc import abstractmethod
from typing import Any

import torch
from torch import Tensor, nn

from mn import functional
from mn.functional import _attention, _checks, _cosine, _linear, _predict
from mn.functional._attention import at_least_float32
from mn.functional._chunks import DEFAULT_MEMORY_BUDGET
from mn.functional._contraction import plan_for


class Head(nn.Module):
    """A network f_φ that can be adapted to each instance.

    One of your own sets ``num_features`` and ``num_outputs`` and defines ``forward`` and
    ``adapted_by``, whose ``near`` is then ``(keys, values)``. The heads here also define
    ``neighbors``, to compute once what depends on the model alone, which is kept between batches
    at inference.
    """

    num_features: int
    num_outputs: int

    @abstractmethod
    def adapted_by(
        self, features: Tensor, near: Any, attention: Tensor, *, alpha: Tensor | float, steps: int
    ) -> Tensor:
        """f_φi(z_i) with φ_i = φ − α∇L_i(φ), from what ``neighbors`` gave: ``(B, outputs)``."""

    def neighbors(self, keys: Tensor, values: Tensor, *, unit_keys: Tensor | None = None) -> Any:  # noqa: ARG002
        """What adaptation needs of the entries and this head; ``unit_keys`` if they are known."""
        return keys, values

    def bounds(self, near: Any) -> Any:  # noqa: ARG002
        """What ``labels_by`` needs of the entries and this head besides ``near``."""
        return None

    def labels_by(
        self,
        features: Tensor,
        near: Any,
        bounds: Any,  # noqa: ARG002
        attention: Tensor,
        *,
        alpha: Tensor | float,
        steps: int,
        cosines: Tensor | None = None,  # noqa: ARG002
    ) -> Tensor:
        """The class with the greatest adapted logit; ``cosines (B, S)`` if they are known."""
        return self.adapted_by(features, near, attention, alpha=alpha, steps=steps).argmax(1)

    def adapted(
        self,
        features: Tensor,
        keys: Tensor,
        values: Tensor,
        *,
        alpha: Tensor | float,
        similarity: str = "cosine",
        temperature: float | Tensor = 0.2,
        steps: int = 1,
        attention: Tensor | None = None,
    ) -> Tensor:
        """The output adapted to every instance; arguments as in :mod:`mn.functional`.

        Shape:
            features ``(B, d)``, keys ``(S, d)``, values ``(S, outputs)`` -> ``(B, outputs)``
        """
        _checks.neighbors(features, keys, names=("features", "keys"))
        _checks.matrix("features", features, columns=self.num_features)
        _checks.matrix("values", values, rows=keys.shape[0], columns=self.num_outputs)
        _checks.at_least("steps", steps, 1)
        if attention is None:
            attention = functional.attend(features, keys, similarity=similarity, temperature=temperature)
        _checks.matrix("attention", attention, rows=len(features), columns=len(keys))
        features, keys, values, attention = at_least_float32(features, keys, values, attention)
        near = self.neighbors(keys, values)
        return self.adapted_by(features, near, attention, alpha=alpha, steps=steps)


class CosineHead(Head):
    r"""The cosine classifier :math:`\tau\langle\hat z, \hat w_c\rangle`.

    Args:
        num_features: d.
        num_classes: C.
        scale: where τ, which is learned, starts.

    Shape:
        - ``(B, d) -> (B, C)``

    Example:
        >>> import torch
        >>> CosineHead(4, 3)(torch.randn(2, 4)).shape
        torch.Size([2, 3])
    """

    def __init__(self, num_features: int, num_classes: int, *, scale: float = 10.0) -> None:
        super().__init__()
        _checks.positive("scale", scale)
        self.num_features, self.num_outputs = num_features, num_classes
        self.initial_scale = scale
        self.weight = nn.Parameter(torch.empty(num_classes, num_features))
        self.scale = nn.Parameter(torch.empty(()))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Class vectors of length about 1, so that α means the same for every d."""
        nn.init.normal_(self.weight, std=1 / math.sqrt(self.num_features))
        nn.init.constant_(self.scale, self.initial_scale)

    def forward(self, features: Tensor) -> Tensor:
        return functional.cosine_logits(features, self.weight, self.scale)

    def neighbors(
        self, keys: Tensor, values: Tensor, *, unit_keys: Tensor | None = None
    ) -> _cosine.Neighbors:
        k = _attention.index(keys, "cosine") if unit_keys is None else unit_keys
        return _cosine.neighbors(k, values, self.weight, self.scale)

    def adapted_by(
        self,
        features: Tensor,
        near: _cosine.Neighbors,
        attention: Tensor,
        *,
        alpha: Tensor | float,
        steps: int,
    ) -> Tensor:
        _checks.rates(alpha, {"per feature": self.num_features})
        plan = plan_for(features.device, DEFAULT_MEMORY_BUDGET)
        return _cosine.adapted(features, near, attention, alpha, steps, plan)

    def bounds(self, near: _cosine.Neighbors) -> _predict.Bounds:
        return _predict.bounds(near)

    def labels_by(
        self,
        features: Tensor,
        near: _cosine.Neighbors,
        bounds: _predict.Bounds,
        attention: Tensor,
        *,
        alpha: Tensor | float,
        steps: int,
        cosines: Tensor | None = None,
    ) -> Tensor:
        plan = plan_for(features.device, DEFAULT_MEMORY_BUDGET)
        return _predict.labels(features, near, bounds, attention, alpha, steps, plan, cosines=cosines)

    def extra_repr(self) -> str:
        return f"{self.num_features}, {self.num_outputs}, scale={self.initial_scale}"


class DotHead(Head):
    r"""The linear classifier :math:`\langle z, w_c\rangle + b_c`.

    Args:
        num_features: d.
        num_classes: C.

    Shape:
        - ``(B, d) -> (B, C)``

    Example:
        >>> import torch
        >>> DotHead(4, 3)(torch.randn(2, 4)).shape
        torch.Size([2, 3])
    """

    def __init__(self, num_features: int, num_classes: int) -> None:
        super().__init__()
        self.num_features, self.num_outputs = num_features, num_classes
        self.weight = nn.Parameter(torch.empty(num_classes, num_features))
        self.bias = nn.Parameter(torch.empty(num_classes))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Rows of length about 1, no bias."""
        nn.init.normal_(self.weight, std=1 / math.sqrt(self.num_features))
        nn.init.zeros_(self.bias)

    def forward(self, features: Tensor) -> Tensor:
        return functional.dot_logits(features, self.weight, self.bias)

    def neighbors(
        self,
        keys: Tensor,
        values: Tensor,
        *,
        unit_keys: Tensor | None = None,  # noqa: ARG002
    ) -> _linear.Neighbors:
        return _linear.neighbors(_linear.classifier(self.weight, self.bias, 0.0), keys, values)

    def adapted_by(
        self,
        features: Tensor,
        near: _linear.Neighbors,
        attention: Tensor,
        *,
        alpha: Tensor | float,
        steps: int,
    ) -> Tensor:
        _checks.rates(alpha, {"per feature": self.num_features})
        plan = plan_for(features.device, DEFAULT_MEMORY_BUDGET)
        network = _linear.classifier(self.weight, self.bias, alpha)
        return _linear.adapted(features, network, near, attention, steps, plan)

    def extra_repr(self) -> str:
        return f"{self.num_features}, {self.num_outputs}"


class MLPHead(Head):
    """An MLP all of whose layers are adapted; the paper's regressor, or a classifier of its kind.

    Args:
        num_features: d.
        num_outputs: targets an instance, for regression: the inner loss is the squared error; or
        num_classes: C, for classification: the outputs are logits, the inner loss the cross entropy.
        hidden: widths of the layers between; ``()`` is a linear regressor.
        activation: ``"relu"`` or ``"tanh"``.

    Shape:
        - ``(B, d) -> (B, num_outputs)``

    Example:
        >>> import torch
        >>> MLPHead(4, 1, hidden=(8, 8))(torch.randn(2, 4)).shape
        torch.Size([2, 1])
    """

    def __init__(
        self,
        num_features: int,
        num_outputs: int | None = None,
        *,
        num_classes: int | None = None,
        hidden: tuple[int, ...] = (256, 256),
        activation: str = "relu",
    ) -> None:
        super().__init__()
        _checks.one_of("activation", activation, _checks.ACTIVATIONS)
        if (num_outputs is None) == (num_classes is None):
            raise ValueError(
                "expected one of num_outputs and num_classes, "
                f"got num_outputs={num_outputs}, num_classes={num_classes}"
            )
        self.num_features, self.num_classes = num_features, num_classes
        self.num_outputs = (num_outputs or 0) + (num_classes or 0)
        self.activation = activation
        widths = (num_features, *hidden, self.num_outputs)
        self.layers = nn.ModuleList(nn.Linear(before, after) for before, after in itertools.pairwise(widths))
        self.reset_parameters()

    @property
    def linears(self) -> list[nn.Linear]:
        """The layers, first to last."""
        return [layer for layer in self.layers if isinstance(layer, nn.Linear)]

    def reset_parameters(self) -> None:
        """He (before a relu) or Xavier weights, no biases."""
        for depth, layer in enumerate(self.linears):
            if self.activation == "relu" and depth < len(self.linears) - 1:
                nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
            else:
                nn.init.xavier_normal_(layer.weight)
            nn.init.zeros_(layer.bias)

    def forward(self, features: Tensor) -> Tensor:
        h = features
        for depth, layer in enumerate(self.linears):
            h = layer(h)
            if depth < len(self.layers) - 1:
                h = h.relu() if self.activation == "relu" else h.tanh()
        return h

    def neighbors(
        self,
        keys: Tensor,
        values: Tensor,
        *,
        unit_keys: Tensor | None = None,  # noqa: ARG002
    ) -> _linear.Neighbors:
        return _linear.neighbors(self._network(0.0), keys, values)

    def adapted_by(
        self,
        features: Tensor,
        near: _linear.Neighbors,
        attention: Tensor,
        *,
        alpha: Tensor | float,
        steps: int,
    ) -> Tensor:
        _checks.rates(alpha, {"per layer": len(self.layers)})
        plan = plan_for(features.device, DEFAULT_MEMORY_BUDGET)
        return _linear.adapted(features, self._network(alpha), near, attention, steps, plan)

    def _network(self, alpha: Tensor | float) -> _linear.Network:
        layers = [(layer.weight, layer.bias) for layer in self.linears]
        error = _linear.squared_error if self.num_classes is None else _linear.cross_entropy_error
        return _linear.mlp(layers, alpha, self.activation, error)
