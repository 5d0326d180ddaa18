"""Heads f_φ: each gives its plain output, and its output adapted to every instance."""

from __future__ import annotations

import itertools
import math
from abc import abstractmethod
from typing import Any

import torch
from torch import Tensor, nn

from mn import _checks, _cosine, _linear, _predict, functional
from mn._chunks import DEFAULT_MEMORY_BUDGET
from mn._contraction import plan_for


class Head(nn.Module):
    """What :class:`mn.nn.MetaNeighborhoods` asks of a head: ``forward`` and ``adapted``.

    A head of your own needs no more than these two. The other methods split ``adapted`` into what
    depends on the model alone, which is kept between batches at inference, and the rest.
    """

    num_features: int
    num_outputs: int

    @abstractmethod
    def adapted(
        self,
        features: Tensor,
        keys: Tensor,
        values: Tensor,
        *,
        alpha: Tensor | float,
        similarity: str = "cosine",
        temperature: float = 0.2,
        steps: int = 1,
        attention: Tensor | None = None,
    ) -> Tensor:
        """f_φi(z_i) with φ_i = φ − α∇L_i(φ): ``(B, d) -> (B, outputs)``."""

    def neighbors(self, keys: Tensor, values: Tensor) -> Any:
        """What adaptation needs of the dictionary and this head, whatever the batch."""
        return keys, values

    def adapted_by(
        self, features: Tensor, near: Any, attention: Tensor, *, alpha: Tensor, steps: int
    ) -> Tensor:
        """``adapted``, from what ``neighbors`` gave."""
        return self.adapted(features, *near, alpha=alpha, steps=steps, attention=attention)

    def bounds(self, near: Any) -> Any:  # noqa: ARG002
        """What ``labels_by`` needs besides ``near``, whatever the batch."""
        return None

    def labels_by(
        self,
        features: Tensor,
        near: Any,
        bounds: Any,  # noqa: ARG002
        attention: Tensor,
        *,
        alpha: Tensor,
        steps: int,
        cosines: Tensor | None = None,  # noqa: ARG002
    ) -> Tensor:
        """The class with the greatest adapted logit; ``cosines (B, S)`` if they are known."""
        return self.adapted_by(features, near, attention, alpha=alpha, steps=steps).argmax(1)


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

    def adapted(
        self,
        features: Tensor,
        keys: Tensor,
        values: Tensor,
        *,
        alpha: Tensor | float,
        similarity: str = "cosine",
        temperature: float = 0.2,
        steps: int = 1,
        attention: Tensor | None = None,
    ) -> Tensor:
        return functional.adapted_logits(
            features,
            keys,
            values,
            self.weight,
            alpha=alpha,
            scale=self.scale,
            similarity=similarity,
            temperature=temperature,
            steps=steps,
            attention=attention,
        )

    def neighbors(self, keys: Tensor, values: Tensor) -> _cosine.Neighbors:
        return _cosine.neighbors(keys, values, self.weight, self.scale)

    def adapted_by(
        self,
        features: Tensor,
        near: _cosine.Neighbors,
        attention: Tensor,
        *,
        alpha: Tensor,
        steps: int,
    ) -> Tensor:
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
        alpha: Tensor,
        steps: int,
        cosines: Tensor | None = None,
    ) -> Tensor:
        plan = plan_for(features.device, DEFAULT_MEMORY_BUDGET)
        return _predict.labels(
            features, near, bounds, attention, alpha, steps, plan, cosines=cosines
        )

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

    def adapted(
        self,
        features: Tensor,
        keys: Tensor,
        values: Tensor,
        *,
        alpha: Tensor | float,
        similarity: str = "cosine",
        temperature: float = 0.2,
        steps: int = 1,
        attention: Tensor | None = None,
    ) -> Tensor:
        return functional.adapted_logits(
            features,
            keys,
            values,
            self.weight,
            alpha=alpha,
            bias=self.bias,
            similarity=similarity,
            temperature=temperature,
            steps=steps,
            attention=attention,
        )

    def neighbors(self, keys: Tensor, values: Tensor) -> _linear.Neighbors:
        return _linear.neighbors(_linear.classifier(self.weight, self.bias, 0.0), keys, values)

    def adapted_by(
        self,
        features: Tensor,
        near: _linear.Neighbors,
        attention: Tensor,
        *,
        alpha: Tensor,
        steps: int,
    ) -> Tensor:
        plan = plan_for(features.device, DEFAULT_MEMORY_BUDGET)
        network = _linear.classifier(self.weight, self.bias, alpha)
        return _linear.adapted(features, network, near, attention, steps, plan)

    def extra_repr(self) -> str:
        return f"{self.num_features}, {self.num_outputs}"


class MLPHead(Head):
    """An MLP all of whose layers are adapted; the paper's regressor.

    Args:
        num_features: d.
        num_outputs: targets an instance.
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
        num_outputs: int,
        *,
        hidden: tuple[int, ...] = (256, 256),
        activation: str = "relu",
    ) -> None:
        super().__init__()
        _checks.one_of("activation", activation, _checks.ACTIVATIONS)
        self.num_features, self.num_outputs = num_features, num_outputs
        self.activation = activation
        widths = (num_features, *hidden, num_outputs)
        self.layers = nn.ModuleList(
            nn.Linear(before, after) for before, after in itertools.pairwise(widths)
        )
        self.reset_parameters()

    @property
    def linears(self) -> list[nn.Linear]:
        """The layers, first to last."""
        return [layer for layer in self.layers if isinstance(layer, nn.Linear)]

    def reset_parameters(self) -> None:
        """He (relu) or Xavier (tanh) weights, no biases."""
        for layer in self.linears:
            if self.activation == "relu":
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

    def adapted(
        self,
        features: Tensor,
        keys: Tensor,
        values: Tensor,
        *,
        alpha: Tensor | float,
        similarity: str = "cosine",
        temperature: float = 0.1,
        steps: int = 1,
        attention: Tensor | None = None,
    ) -> Tensor:
        return functional.adapted_mlp(
            features,
            keys,
            values,
            [(layer.weight, layer.bias) for layer in self.linears],
            alpha=alpha,
            activation=self.activation,
            similarity=similarity,
            temperature=temperature,
            steps=steps,
            attention=attention,
        )

    def neighbors(self, keys: Tensor, values: Tensor) -> _linear.Neighbors:
        return _linear.neighbors(self._network(0.0), keys, values)

    def adapted_by(
        self,
        features: Tensor,
        near: _linear.Neighbors,
        attention: Tensor,
        *,
        alpha: Tensor,
        steps: int,
    ) -> Tensor:
        plan = plan_for(features.device, DEFAULT_MEMORY_BUDGET)
        return _linear.adapted(features, self._network(alpha), near, attention, steps, plan)

    def _network(self, alpha: Tensor | float) -> _linear.Network:
        layers = [(layer.weight, layer.bias) for layer in self.linears]
        return _linear.regressor(layers, alpha, self.activation)
