"""Feeding images to a training loop: one tensor of all of them, shuffled by index, augmented in large blocks.

Every batch is a function of (seed, epoch, its place in the epoch) alone: the number of workers, the device
and where the images lie change nothing in it, and a run resumed in the middle of an epoch finds the same.
"""

from __future__ import annotations

import hashlib
import os
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Literal

import h5py
import numpy as np
import torch
from torch import Tensor

from mn.data.augment import Policy, augment
from mn.data.feed import epoch_order
from mn.data.hdf5 import PARTS, open_dataset
from mn.errors import MNError

Place = Literal["auto", "device", "memory", "file"]
Batch = tuple[Tensor, Tensor]

# Batches augmented together: operations on few images cost more to start than to run.
_BATCHES = 16


class ImageLoader:
    """Batches of one part of an image data set.

    Args:
        path: The HDF5 file.
        split: Such as ``main``.
        part: ``train``, ``validation`` or ``test``.
        batch_size: The last batch of an epoch may be smaller.
        seed: Of the order and of the augmentation.
        device: Where batches are made and returned.
        policy: What to do to the images; None leaves them as they are.
        workers: Threads that make batches ahead of time; 0 makes them when they are asked for.
        place: Where all images lie: on the ``device``, in ``memory``, or in the ``file``, mapped. ``auto``
            takes the first that has room.

    Shape:
        - batches: images ``(B, C, H, W)`` uint8, labels ``(B,)`` int64
    """

    def __init__(
        self,
        path: Path,
        split: str,
        part: str,
        *,
        batch_size: int,
        seed: int,
        device: torch.device | str = "cpu",
        policy: Policy | None = None,
        workers: int = 0,
        place: Place = "auto",
    ) -> None:
        if part not in PARTS:
            raise MNError(f"ImageLoader: part {part!r} is none of {', '.join(PARTS)}")
        self._device = torch.device(device)
        self._batch_size = batch_size
        self._seed = seed
        self._policy = policy
        self._workers = workers
        with open_dataset(path) as file:
            if file.attrs["kind"] != "images":
                raise MNError(f"{path}: {file.attrs['kind']}, not images")
            if f"splits/{split}" not in file:
                raise MNError(f"{path}: no split {split}; it has {', '.join(file['splits'])}")
            self._rows = torch.from_numpy(file[f"splits/{split}/{part}"][:])
            self._labels = torch.from_numpy(file["y"][:])[self._rows]
            size = file["x"].size
            self.place = _choose(size, self._device) if place == "auto" else place
            self._images = (
                _mapped(path, file["x"]) if self.place == "file" else torch.from_numpy(file["x"][:])
            )
        if self.place == "device":
            self._images = self._images.to(self._device)

    def __len__(self) -> int:
        """Batches in an epoch."""
        return -(-len(self._rows) // self._batch_size)

    def epoch(self, epoch: int, *, start: int = 0) -> Iterator[Batch]:
        """The batches of an epoch in random order, from number ``start`` on."""
        order = epoch_order(len(self._rows), seed=self._seed, epoch=epoch)
        blocks = range(start // _BATCHES, -(-len(self) // _BATCHES))
        skip = start % _BATCHES
        for images, labels in self._made(order, epoch, blocks):
            for first in range(skip * self._batch_size, len(labels), self._batch_size):
                yield images[first : first + self._batch_size], labels[first : first + self._batch_size]
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
        rows = self._rows[chosen].to(self._images.device)
        images = self._images.index_select(0, rows).to(self._device)
        if self._policy is not None:
            images = augment(images, _generator(self._seed, epoch, block), self._policy)
        return images, self._labels[chosen].to(self._device)


def _generator(seed: int, epoch: int, block: int) -> torch.Generator:
    digest = hashlib.blake2b(f"augment {seed} {epoch} {block}".encode(), digest_size=8).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest, "big") >> 1)


def _choose(size: int, device: torch.device) -> Place:
    if device.type == "cuda" and size < torch.cuda.mem_get_info(device)[0] // 2:
        return "device"
    free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return "memory" if size < free // 2 else "file"


def _mapped(path: Path, dataset: h5py.Dataset) -> Tensor:
    """The images as they lie in the file: pages come into memory when they are looked at."""
    offset = dataset.id.get_offset()
    if offset is None:
        raise MNError(f"{path}: its images do not lie in one piece; preprocess it again")
    # Copy-on-write, as PyTorch warns of memory that it must not write to; nobody writes here.
    return torch.from_numpy(np.memmap(path, np.uint8, "c", offset, dataset.shape))
