"""The inner rate α as a module."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from mn.functional import _checks

KINDS = ("scalar", "diagonal", "layer")


class Alpha(nn.Module):
    r"""The inner rate :math:`\alpha = |a|`, which is never negative whatever the optimiser does.

    Args:
        kind: ``"scalar"``; ``"diagonal"``, one rate a feature; ``"layer"``, one a layer of an MLP.
        size: how many rates a ``"diagonal"`` or ``"layer"`` α has; a scalar takes none.
        init: where every :math:`a` starts.
        learned: ``False`` keeps it where it starts (it is then a buffer, not a parameter).

    Shape:
        - ``()`` -> α, ``()`` or ``(size,)``

    Example:
        >>> Alpha("diagonal", 3, init=0.5)()
        tensor([0.5000, 0.5000, 0.5000], grad_fn=<AbsBackward0>)
    """

    a: Tensor

    def __init__(
        self,
        kind: str = "scalar",
        size: int | None = None,
        *,
        init: float = 0.05,
        learned: bool = True,
    ) -> None:
        super().__init__()
        _checks.one_of("alpha", kind, KINDS)
        if (kind == "scalar") != (size is None):
            expected = "none" if kind == "scalar" else "the number of rates"
            raise ValueError(f"size of a {kind} alpha: expected {expected}, got {size}")
        self.kind, self.size, self.init, self.learned = kind, size, init, learned
        a = torch.empty(() if size is None else (size,))
        if learned:
            self.a = nn.Parameter(a)
        else:
            self.register_buffer("a", a)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Every rate back to where it starts."""
        nn.init.constant_(self.a, self.init)

    def forward(self) -> Tensor:
        return self.a.abs()

    def extra_repr(self) -> str:
        return f"{self.kind}, size={self.size}, init={self.init}, learned={self.learned}"
