"""Feeding a model: the whole part as one tensor, batches drawn from it by index."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from mn.data.split import Part


def as_input(x: Tensor) -> Tensor:
    """uint8 images to float32 in [0, 1] (the paper normalises no further); anything else as it is."""
    return x.to(torch.float32) / 255 if x.dtype == torch.uint8 else x


def epoch_order(count: int, *, seed: int, epoch: int) -> Tensor:
    """The order of the rows in one epoch ``(count,)``, a function of seed and epoch alone.

    It does not touch the global generator, so that a run resumed in the middle of an epoch finds the
    same order again.
    """
    # Hashed: of a seed PyTorch's generator on the CPU takes the lowest 32 bits alone.
    digest = hashlib.blake2b(f"order {seed} {epoch}".encode(), digest_size=8).digest()
    generator = torch.Generator().manual_seed(int.from_bytes(digest, "big") >> 1)
    return torch.randperm(count, generator=generator)


def batches(part: Part, batch_size: int, device: torch.device) -> Iterator[tuple[Tensor, Tensor]]:
    """A part in its own order, for evaluation: ``x (B, …)`` as a model takes it, ``y (B, …)``."""
    for start in range(0, len(part), batch_size):
        rows = slice(start, start + batch_size)
        yield as_input(part.inputs(rows).to(device)), part.y[rows].to(device)


def as_arrays(part: Part) -> tuple[np.ndarray, np.ndarray]:
    """A part as scikit-learn takes it: inputs ``(n, d)``, and its targets."""
    return as_input(part.inputs(slice(None))).flatten(1).numpy(), part.y.numpy()
