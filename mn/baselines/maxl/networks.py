"""MAXL's two networks: the one that is wanted, with an auxiliary head, and the one that makes its labels."""

from __future__ import annotations

from torch import Tensor, nn

from mn.baselines.maxl.losses import masked_softmax
from mn.functional import _checks
from mn.nn import CosineHead, DotHead, Vanilla

HEADS: dict[str, type[CosineHead] | type[DotHead]] = {"cosine": CosineHead, "dot": DotHead}


class MAXLNetwork(Vanilla):
    """The multi-task network: a primary and an auxiliary head on one backbone.

    Called, or evaluated, it is the vanilla network of its primary part.

    Args:
        backbone: μ_θ, any module that gives ``(B, num_features)``.
        num_features: d.
        num_classes: C.
        subclasses: ψ, auxiliary classes of each primary class.
        head: ``"cosine"`` or ``"dot"``, for both heads.

    Shape:
        - what the backbone takes -> ``(B, C)``

    Example:
        >>> import torch
        >>> network = MAXLNetwork(torch.nn.Identity(), 4, 3, subclasses=2)
        >>> primary, auxiliary = network.both(torch.randn(5, 4))
        >>> primary.shape, auxiliary.shape
        (torch.Size([5, 3]), torch.Size([5, 6]))
    """

    def __init__(
        self,
        backbone: nn.Module,
        num_features: int,
        num_classes: int,
        *,
        subclasses: int = 5,
        head: str = "cosine",
    ) -> None:
        _checks.at_least("subclasses", subclasses, 1)
        _checks.one_of("head", head, tuple(HEADS))
        super().__init__(backbone, HEADS[head](num_features, num_classes))
        self.auxiliary = HEADS[head](num_features, num_classes * subclasses)

    def both(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Primary ``(B, C)`` and auxiliary ``(B, C·ψ)`` logits."""
        z = self.features(x)
        return self.head(z), self.auxiliary(z)


class LabelGenerator(nn.Module):
    """Soft auxiliary labels for rows whose class is known: :func:`masked_softmax` of a linear head.

    Args:
        backbone: any module that gives ``(B, num_features)``; not the network's own.
        num_features: d.
        num_classes: C.
        subclasses: ψ, as in the network.

    Shape:
        - what the backbone takes, classes ``(B,)`` -> ``(B, C·ψ)``

    Example:
        >>> import torch
        >>> generator = LabelGenerator(torch.nn.Identity(), 4, 3, subclasses=2)
        >>> generator(torch.randn(5, 4), torch.tensor([0, 1, 2, 0, 1])).shape
        torch.Size([5, 6])
    """

    def __init__(
        self, backbone: nn.Module, num_features: int, num_classes: int, *, subclasses: int = 5
    ) -> None:
        super().__init__()
        _checks.at_least("subclasses", subclasses, 1)
        self.backbone, self.subclasses = backbone, subclasses
        self.head = DotHead(num_features, num_classes * subclasses)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return masked_softmax(self.head(self.backbone(x)), y, subclasses=self.subclasses)
