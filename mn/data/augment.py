"""Training-time augmentation of a batch of uint8 images, on the device they are on.

In the order of the paper's released code: pad and crop, flip, AutoAugment, cutout.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from mn.data.autoaugment import autoaugment, shift
from mn.errors import MNError


@dataclass(frozen=True)
class Policy:
    """What is done to an image in training. ``Policy(flip=…)`` is the paper's; a flip is up to the data set.

    Attributes:
        pad: Pixels of zeros around the image before it is cropped to its size again, at random; 0 for none.
        flip: Mirror every second image.
        autoaugment: Apply the CIFAR-10 policy of AutoAugment.
        cutout: Side of a square of zeros put at random, in part outside the image; 0 for none.
    """

    flip: bool
    pad: int = 4
    autoaugment: bool = True
    cutout: int = 16

    def __post_init__(self) -> None:
        if self.pad < 0 or self.cutout < 0:
            raise MNError(f"augmentation: pad = {self.pad}, cutout = {self.cutout}; neither may be negative")


def augment(images: Tensor, generator: torch.Generator, policy: Policy) -> Tensor:
    """Augmented copies of ``images (B, C, H, W)`` uint8, each with draws of its own.

    Args:
        images: On any device; left as they are.
        generator: A CPU generator. It alone decides what is drawn, so that one seed gives the same bytes on
            every device, whatever else draws random numbers.
        policy: What to do.
    """
    if images.dtype != torch.uint8 or images.ndim != 4 or images.shape[1] not in (1, 3):
        raise MNError(f"augment: expected uint8 (B, 1 or 3, H, W), got {images.dtype} {tuple(images.shape)}")
    images = crop_and_flip(images, generator, pad=policy.pad, flip=policy.flip)
    if policy.autoaugment:
        images = autoaugment(images, generator)
    if policy.cutout:
        cutout(images, generator, policy.cutout)
    return images


def crop_and_flip(images: Tensor, generator: torch.Generator, *, pad: int, flip: bool) -> Tensor:
    """Each image moved by up to ``pad`` pixels either way, and every second one mirrored."""
    count, side = len(images), 2 * pad + 1
    drawn = torch.randint(side * side * (2 if flip else 1), (count,), generator=generator)
    # Images that drew the same are copied together, line by line: much faster than pixel by pixel.
    order = torch.argsort(drawn, stable=True)
    present, sizes = torch.unique_consecutive(drawn[order], return_counts=True)
    images = images.index_select(0, order.to(images.device))
    moved, start = [], 0
    for draw, size in zip(present.tolist(), sizes.tolist(), strict=True):
        group = shift(images[start : start + size], draw // side % side - pad, draw % side - pad)
        moved.append(group.flip(3) if draw >= side * side else group)
        start += size
    return torch.cat(moved).index_select(0, torch.argsort(order).to(images.device))


def cutout(images: Tensor, generator: torch.Generator, side: int) -> Tensor:
    """Put a square of zeros into each image, in place; its centre is any pixel, so that it may stick out."""
    count, _, height, width = images.shape
    device = images.device
    y = torch.randint(height, (count, 1), generator=generator).to(device) - side // 2
    x = torch.randint(width, (count, 1), generator=generator).to(device) - side // 2
    down, across = torch.arange(height, device=device), torch.arange(width, device=device)
    rows = (down >= y) & (down < y + side)  # (B, H)
    columns = (across >= x) & (across < x + side)  # (B, W)
    kept = ~(rows[:, None, :, None] & columns[:, None, None, :])
    return images.mul_(kept)
