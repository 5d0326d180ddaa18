"""Batched augmentation against torchvision's per-image PIL pipeline of the same policy, both on two cores.

Part of ``python -m bench``. The two take turns, so that a busy machine slows both; the best of
the rounds counts for each.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import numpy as np
import torch
import torchvision.transforms as T
from PIL import Image
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from mn.data.augment import Policy
from mn.data.feed import as_input
from mn.data.loader import Loader
from mn.data.split import Part

WORKERS = 2
BATCH = 128


class _Cutout:
    """The usual per-image cutout."""

    def __call__(self, image: Tensor) -> Tensor:
        height, width = image.shape[1:]
        y, x = int(torch.randint(height, ())), int(torch.randint(width, ()))
        image[:, max(y - 8, 0) : y + 8, max(x - 8, 0) : x + 8] = 0
        return image


class _PerImage(Dataset[Tensor]):
    def __init__(self, pixels: np.ndarray) -> None:
        self._pixels = pixels
        self._transform = T.Compose(
            [
                T.RandomCrop(32, padding=4),
                T.RandomHorizontalFlip(),
                T.AutoAugment(T.AutoAugmentPolicy.CIFAR10),
                T.ToTensor(),
                _Cutout(),
            ]
        )

    def __len__(self) -> int:
        return len(self._pixels)

    def __getitem__(self, row: int) -> Tensor:
        image: Tensor = self._transform(Image.fromarray(self._pixels[row]))
        return image


def rows(rounds: int = 3, count: int = 40_000, per_image_count: int = 4_096) -> list[dict[str, float | str]]:
    """One row per pipeline: images a second, and how many times the slower one's that is."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    pixels = np.random.default_rng(0).integers(0, 256, (count, 32, 32, 3), dtype=np.uint8)
    try:
        images = torch.from_numpy(np.ascontiguousarray(pixels.transpose(0, 3, 1, 2)))
        loader = Loader(
            Part(images, torch.zeros(count, dtype=torch.int64)),
            batch_size=BATCH,
            seed=0,
            policy=Policy(flip=True),
            workers=WORKERS,
        )
        epochs = iter(range(10**6))
        per_image = DataLoader(
            _PerImage(pixels[:per_image_count]),
            BATCH,
            shuffle=True,
            num_workers=WORKERS,
            persistent_workers=True,
        )
        pipelines: dict[str, Callable[[], Iterator[Tensor]]] = {
            "torchvision, per image (PIL), 2 processes": lambda: iter(per_image),
            "mn, batched, 2 threads": lambda: (as_input(batch.x) for batch in loader.epoch(next(epochs))),
        }
        best = dict.fromkeys(pipelines, 0.0)
        for _ in range(rounds + 1):  # the first also starts the workers
            for name, pipeline in pipelines.items():
                best[name] = max(best[name], _throughput(pipeline))
    finally:
        torch.set_num_threads(threads)
    slowest = min(best.values())
    return [{"pipeline": name, "images/s": speed, "times": speed / slowest} for name, speed in best.items()]


def _throughput(pipeline: Callable[[], Iterator[Tensor]]) -> float:
    started, images = time.perf_counter(), 0
    for batch in pipeline():
        images += len(batch)
    return images / (time.perf_counter() - started)


def line(row: dict[str, float | str]) -> str:
    """A row as text."""
    return f"{row['pipeline']:<45}{row['images/s']:>12,.0f} images/s{row['times']:>8.1f}x"
