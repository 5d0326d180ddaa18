"""How a data set uses a learned dictionary: which entries are looked at, and how many at a time."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from mn.data.feed import batches
from mn.data.split import Part
from mn.nn import MetaNeighborhoods
from mn.nn.dictionary import share_in_use


@dataclass(frozen=True)
class AttentionStatistics:
    """Attention ``ω (N, S)`` of a part's rows, summed up.

    Attributes:
        weight: mean weight of each entry over the rows ``(S,)``; sums to 1.
        nearest: how many rows have the entry as their heaviest ``(S,)``.
        effective: per row, the number of entries that really count, ``1 / Σ_j ω_j²`` ``(N,)``.
    """

    weight: Tensor
    nearest: Tensor
    effective: Tensor

    @property
    def share_in_use(self) -> float:
        """The share of entries that are looked at: see :func:`mn.nn.dictionary.share_in_use`."""
        return share_in_use(self.weight)


@torch.inference_mode()
def attention_statistics(
    model: MetaNeighborhoods, part: Part, device: torch.device, *, batch_size: int = 512
) -> AttentionStatistics:
    """Statistics over a part, without ever holding its whole ``(N, S)`` attention."""
    size = len(model.dictionary.keys)
    weight = torch.zeros(size, dtype=torch.float64)
    nearest = torch.zeros(size, dtype=torch.int64)
    effective = []
    for x, _ in batches(part, batch_size, device):
        attention = model.attention(x).cpu().double()  # (B, S)
        weight += attention.sum(0)
        nearest += torch.bincount(attention.argmax(1), minlength=size)
        effective.append(1 / attention.square().sum(1))
    return AttentionStatistics(weight / len(part), nearest, torch.cat(effective))
