"""Feeding a training loop: rows shuffled by index, gathered and augmented in large blocks.

Every batch is a function of (seed, epoch, its place in the epoch) alone: the number of workers, the device
and the number of processes change nothing in it, and a run resumed in the middle of an epoch finds the same.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

import torch
from torch import Tensor

from mn.data.augment import Policy, augment
from mn.data.feed import epoch_order
from mn.data.split import Part


class Batch(NamedTuple):
    """Rows of a part."""

    x: Tensor  # (B, …) as they are stored, or augmented
    y: Tensor  # (B, …)
    rows: Tensor  # (B,) their places in the part
    weights: Tensor | None  # (B,) how much each counts in the loss

    def part(self, rows: slice) -> Batch:
        """Some of them."""
        weights = None if self.weights is None else self.weights[rows]
        return Batch(self.x[rows], self.y[rows], self.rows[rows], weights)


# Batches augmented together: operations on few images cost more to start than to run.
_BATCHES = 16


class Loader:
    """Batches of one part of a data set, in a new order every epoch.

    Args:
        part: What to feed; images are uint8.
        batch_size: The last batch of an epoch may be smaller.
        seed: Of the order and of the augmentation.
        device: Where batches are made and returned. A GPU that has room takes the whole part.
        policy: What to do to images; None leaves the rows as they are.
        workers: Threads that make batches ahead of time; 0 makes them when they are asked for.

    Shape:
        - batches: see :class:`Batch`

    Example:
        >>> part = Part(torch.arange(5.0).unsqueeze(1), torch.arange(5))
        >>> [len(batch.y) for batch in Loader(part, batch_size=2, seed=0).epoch(0)]
        [2, 2, 1]
    """

    def __init__(
        self,
        part: Part,
        *,
        batch_size: int,
        seed: int,
        device: torch.device | str = "cpu",
        policy: Policy | None = None,
        workers: int = 0,
    ) -> None:
        self._device = torch.device(device)
        self._part = part.on(self._device) if _has_room(part.x, self._device) else part
        self._batch_size = batch_size
        self._seed = seed
        self._policy = policy
        self._workers = workers

    def __len__(self) -> int:
        """Batches in an epoch."""
        return -(-len(self._part) // self._batch_size)

    def epoch(self, epoch: int, *, start: int = 0) -> Iterator[Batch]:
        """The batches of an epoch in random order, from number ``start`` on."""
        order = epoch_order(len(self._part), seed=self._seed, epoch=epoch)
        blocks = range(start // _BATCHES, -(-len(self) // _BATCHES))
        skip = start % _BATCHES
        for block in self._made(order, epoch, blocks):
            for first in range(skip * self._batch_size, len(block.y), self._batch_size):
                yield block.part(slice(first, first + self._batch_size))
            skip = 0

    def _made(self, order: Tensor, epoch: int, blocks: range) -> Iterator[Batch]:
        if not self._workers:
            for block in blocks:
                yield self._make(order, epoch, block)
            return
        with ThreadPoolExecutor(self._workers) as pool:
            waiting: deque[Future[Batch]] = deque()
            try:
                for block in blocks:
                    waiting.append(pool.submit(self._make, order, epoch, block))
                    if len(waiting) > self._workers:
                        yield waiting.popleft().result()
                while waiting:
                    yield waiting.popleft().result()
            finally:
                for future in waiting:
                    future.cancel()

    def _make(self, order: Tensor, epoch: int, block: int) -> Batch:
        size = _BATCHES * self._batch_size
        chosen = order[block * size : (block + 1) * size]
        x = self._part.inputs(chosen).to(self._device)
        if self._policy is not None:
            x = augment(x, _generator(self._seed, epoch, block), self._policy)
        weights = None if self._part.weights is None else self._part.weights[chosen].to(self._device)
        return Batch(x, self._part.y[chosen].to(self._device), chosen.to(self._device), weights)


def _generator(seed: int, epoch: int, block: int) -> torch.Generator:
    digest = hashlib.blake2b(f"augment {seed} {epoch} {block}".encode(), digest_size=8).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest, "big") >> 1)


def _has_room(x: Tensor, device: torch.device) -> bool:
    """Whether a GPU can hold all of it in half of what is free there."""
    return device.type == "cuda" and x.numel() * x.element_size() < torch.cuda.mem_get_info(device)[0] // 2
