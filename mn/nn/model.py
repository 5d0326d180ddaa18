"""The model: any backbone, a head, and the dictionary that adapts it to every instance."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from mn import _checks
from mn.nn.alpha import Alpha
from mn.nn.dictionary import Dictionary
from mn.nn.heads import CosineHead, DotHead, Head, MLPHead

HEADS = ("cosine", "dot", "mlp")


class Vanilla(nn.Module):
    """The same backbone and head without a dictionary: what the method is compared with.

    Shape:
        - what the backbone takes -> ``(B, outputs)``

    Example:
        >>> import torch
        >>> from mn.nn import CosineHead
        >>> Vanilla(torch.nn.Identity(), CosineHead(4, 3))(torch.randn(2, 4)).shape
        torch.Size([2, 3])
    """

    def __init__(self, backbone: nn.Module, head: nn.Module) -> None:
        super().__init__()
        self.backbone, self.head = backbone, head

    def features(self, x: Tensor) -> Tensor:
        """z = μ_θ(x)."""
        z: Tensor = self.backbone(x)
        return z

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(self.backbone(x))
        return out


class MetaNeighborhoods(nn.Module):
    r"""A network whose head takes a gradient step on a learned dictionary for every instance.

    .. math::
        z_i = \mu_\theta(x_i), \qquad
        \phi_i = \phi - \alpha \nabla_\phi \sum_j \omega(z_i, k_j) L(f_\phi(k_j), v_j), \qquad
        \hat y_i = f_{\phi_i}(z_i)

    Args:
        backbone: μ_θ, any module that gives ``(B, num_features)``; ``nn.Identity()`` for the input.
        num_features: d.
        num_classes: C, for classification; or
        num_outputs: the number of targets, for regression.
        S: entries of the dictionary.
        head: ``"cosine"``, ``"dot"``, ``"mlp"``, or a :class:`mn.nn.Head`. By default ``"cosine"``
            for classes, ``"mlp"`` for targets.
        hidden, activation: of the ``"mlp"`` head.
        T: temperature of the attention.
        similarity: ``"cosine"`` or ``"euclidean"``.
        steps: inner steps.
        alpha: ``"scalar"``, ``"diagonal"`` (classifiers) or ``"layer"`` (MLP).
        alpha_init, alpha_learned: see :class:`mn.nn.Alpha`.
        dropout, dropout_per: see :class:`mn.nn.Dictionary`, as for
        dictionary: what else it takes (``key_init``, ``key_scale``, ``values``, ...).

    Shape:
        - what the backbone takes -> ``(B, C)`` logits, or ``(B, num_outputs)``

    Example:
        >>> import torch
        >>> backbone = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(192, 16))
        >>> model = MetaNeighborhoods(backbone, num_classes=10, num_features=16, S=50)
        >>> model(torch.randn(2, 3, 8, 8)).shape
        torch.Size([2, 10])
    """

    def __init__(
        self,
        backbone: nn.Module,
        *,
        num_features: int,
        num_classes: int | None = None,
        num_outputs: int | None = None,
        S: int = 5000,
        head: str | nn.Module | None = None,
        hidden: tuple[int, ...] = (256, 256),
        activation: str = "relu",
        T: float = 0.2,
        similarity: str = "cosine",
        steps: int = 1,
        alpha: str = "scalar",
        alpha_init: float = 0.05,
        alpha_learned: bool = True,
        dropout: float = 0.5,
        dropout_per: str = "batch",
        **dictionary: Any,
    ) -> None:
        super().__init__()
        _checks.at_least("steps", steps, 1)
        self.backbone = backbone
        self.dictionary = Dictionary(
            S,
            num_features,
            num_classes=num_classes,
            num_outputs=num_outputs,
            dropout=dropout,
            dropout_per=dropout_per,
            similarity=similarity,
            temperature=T,
            **dictionary,
        )
        if head is None:
            head = "mlp" if num_classes is None else "cosine"
        if isinstance(head, str):
            head = _head(head, num_features, num_classes, num_outputs, hidden, activation)
        self.head = head
        self.alpha = Alpha(alpha, self._rates(alpha), init=alpha_init, learned=alpha_learned)
        self.num_features, self.steps = num_features, steps

    def features(self, x: Tensor) -> Tensor:
        """z = μ_θ(x): ``(B, d)``."""
        z: Tensor = self.backbone(x)
        if z.ndim != 2 or z.shape[1] != self.num_features:
            raise ValueError(f"backbone: expected features (B, {self.num_features}), got {tuple(z.shape)}")
        return z

    def forward(self, x: Tensor) -> Tensor:
        z = self.features(x)
        keys, values, ω = self.dictionary(z)
        out: Tensor = self.head.adapted(  # type: ignore[operator]
            z, keys, values, alpha=self.alpha(), attention=ω, steps=self.steps
        )
        return out

    def unadapted(self, x: Tensor) -> Tensor:
        """The head before adaptation."""
        out: Tensor = self.head(self.features(x))
        return out

    def attention(self, x: Tensor) -> Tensor:
        """ω(z, k) over all entries: ``(B, S)``."""
        return self.dictionary.attend(self.features(x))

    @torch.no_grad()
    def predict(self, x: Tensor) -> Tensor:
        """Labels ``(B,)`` of a classifier, outputs ``(B, num_outputs)`` of a regressor."""
        out: Tensor = self(x)
        return out if self.dictionary.num_classes is None else out.argmax(1)

    def _rates(self, alpha: str) -> int | None:
        """How many rates α needs for this head; refuses the ones the head has no use for."""
        if alpha == "scalar":
            return None
        if alpha == "layer":
            layers = getattr(self.head, "layers", None)
            if layers is None:
                raise ValueError("alpha='layer': expected an MLP head, got " + type(self.head).__name__)
            return len(layers)
        if isinstance(self.head, MLPHead):
            raise ValueError(f"alpha of an MLP head: expected scalar or layer, got {alpha}")
        return self.dictionary.num_features


def _head(
    name: str,
    d: int,
    num_classes: int | None,
    num_outputs: int | None,
    hidden: tuple[int, ...],
    activation: str,
) -> Head:
    _checks.one_of("head", name, HEADS)
    if num_outputs is not None and name == "mlp":
        return MLPHead(d, num_outputs, hidden=hidden, activation=activation)
    if num_classes is not None and name == "cosine":
        return CosineHead(d, num_classes)
    if num_classes is not None and name == "dot":
        return DotHead(d, num_classes)
    task = "classes: expected cosine or dot" if num_outputs is None else "targets: expected mlp"
    raise ValueError(f"head for {task}, got {name}")
