"""Per-instance weights a slice of the batch at a time: memory follows a budget, not B."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

DEFAULT_MEMORY_BUDGET = 256 * 2**20


def in_chunks(
    function: Callable[[Tensor, Tensor], Tensor],
    features: Tensor,
    attention: Tensor,
    *,
    bytes_per_instance: int,
    memory_budget: int,
) -> Tensor:
    """``function(features, attention)`` for slices of the batch, joined again.

    With more than one slice, a slice keeps nothing for its backward pass but its inputs: it is
    computed again there, so that the budget holds for training too.
    """
    B = features.shape[0]
    size = max(1, memory_budget // max(1, bytes_per_instance))
    if size >= B:
        return function(features, attention)
    parts = []
    for z, ω in zip(torch.split(features, size), torch.split(attention, size), strict=True):
        if torch.is_grad_enabled():
            # nothing in here draws random numbers, so there is no generator state to keep
            part: Tensor = checkpoint(function, z, ω, use_reentrant=False, preserve_rng_state=False)
        else:
            part = function(z, ω)
        parts.append(part)
    return torch.cat(parts)
