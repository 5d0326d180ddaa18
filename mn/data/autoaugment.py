r"""The CIFAR-10 policy of AutoAugment, applied to a whole batch at once.

An image draws one of 25 sub-policies, each two operations with a probability and a strength (Cubuk et al.,
CVPR 2019). Only some forty pairs of operation and strength occur in the policy, so the images that drew the
same pair are worked on together: each operation below is a plain function of a batch and one number, and
gives the very bytes of torchvision's tensor operation of that name.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache

import torch
from torch import Tensor

Operation = tuple[str, float, int | None]  # name, probability, strength 0 to 9

CIFAR10_POLICY: list[tuple[Operation, Operation]] = [
    (("invert", 0.1, None), ("contrast", 0.2, 6)),
    (("rotate", 0.7, 2), ("translate_x", 0.3, 9)),
    (("sharpness", 0.8, 1), ("sharpness", 0.9, 3)),
    (("shear_y", 0.5, 8), ("translate_y", 0.7, 9)),
    (("autocontrast", 0.5, None), ("equalize", 0.9, None)),
    (("shear_y", 0.2, 7), ("posterize", 0.3, 7)),
    (("color", 0.4, 3), ("brightness", 0.6, 7)),
    (("sharpness", 0.3, 9), ("brightness", 0.7, 9)),
    (("equalize", 0.6, None), ("equalize", 0.5, None)),
    (("contrast", 0.6, 7), ("sharpness", 0.6, 5)),
    (("color", 0.7, 7), ("translate_x", 0.5, 8)),
    (("equalize", 0.3, None), ("autocontrast", 0.4, None)),
    (("translate_y", 0.4, 3), ("sharpness", 0.2, 6)),
    (("brightness", 0.9, 6), ("color", 0.2, 8)),
    (("solarize", 0.5, 2), ("invert", 0.0, None)),
    (("equalize", 0.2, None), ("autocontrast", 0.6, None)),
    (("equalize", 0.2, None), ("equalize", 0.6, None)),
    (("color", 0.9, 9), ("equalize", 0.6, None)),
    (("autocontrast", 0.8, None), ("solarize", 0.2, 8)),
    (("brightness", 0.1, 3), ("color", 0.7, 0)),
    (("solarize", 0.4, 5), ("autocontrast", 0.9, None)),
    (("translate_y", 0.9, 9), ("translate_y", 0.7, 9)),
    (("autocontrast", 0.9, None), ("solarize", 0.8, 3)),
    (("equalize", 0.8, None), ("invert", 0.1, None)),
    (("translate_y", 0.7, 9), ("autocontrast", 0.9, None)),
]

# Images worked on at a time: their float32 copies stay in the processor's cache, and a small piece of memory
# is used again and again, where a large one would be asked of the operating system each time.
_BLOCK = 32
_UNSIGNED = ("posterize", "solarize", "autocontrast", "equalize", "invert")


def autoaugment(images: Tensor, generator: torch.Generator) -> Tensor:
    """Images ``(B, C, H, W)`` uint8 with the policy applied; ``C`` is 1 or 3.

    All that is random is drawn from ``generator``, a CPU one whatever device the images are on: the same
    seed gives the same images everywhere.
    """
    count = len(images)
    choice = torch.randint(len(CIFAR10_POLICY), (count,), generator=generator)
    chance = torch.rand((count, 2), generator=generator)
    negative = torch.randint(2, (count, 2), generator=generator) == 0
    probability = torch.tensor([[slot[1] for slot in pair] for pair in CIFAR10_POLICY])
    fires = chance <= probability[choice]
    arrangement = torch.arange(count)  # which image lies where
    for slot in range(2):
        variants, number = _variants(slot)
        # variant 0 is: nothing to do
        drawn = torch.where(fires[:, slot], number[choice, negative[:, slot].long()], 0)[arrangement]
        # Images are moved so that those with the same operation lie side by side, and worked on in place:
        # moving whole images is cheap, writing to scattered ones is not.
        order = torch.argsort(drawn, stable=True)
        arrangement = arrangement[order]
        images = images.index_select(0, order.to(images.device))
        sizes = torch.bincount(drawn, minlength=len(variants) + 1).tolist()
        start = sizes[0]
        for (name, strength), size in zip(variants, sizes[1:], strict=True):
            amount = magnitude(name, strength, images.shape)
            for first in range(start, start + size, _BLOCK):
                block = images[first : min(first + _BLOCK, start + size)]
                block.copy_(OPERATIONS[name](block, amount))
            start += size
    return images.index_select(0, torch.argsort(arrangement).to(images.device))


@cache
def _variants(slot: int) -> tuple[list[tuple[str, int]], Tensor]:
    """The different operations of a slot (name, signed strength + 1), and each sub-policy's two numbers."""
    variants: list[tuple[str, int]] = []
    number = torch.zeros((len(CIFAR10_POLICY), 2), dtype=torch.int64)
    for row, pair in enumerate(CIFAR10_POLICY):
        name, _, strength = pair[slot]
        for negative in range(2):
            sign = -1 if negative and name not in _UNSIGNED else 1
            variant = (name, sign * (1 + (strength or 0)))
            if variant not in variants:
                variants.append(variant)
            number[row, negative] = 1 + variants.index(variant)
    return variants, number


@cache
def magnitude(name: str, strength: int, shape: torch.Size) -> float:
    """What a signed strength (±1 to ±10) means for an operation on images of this shape."""
    level, sign = abs(strength) - 1, math.copysign(1.0, strength)
    if name in ("shear_x", "shear_y"):
        largest = 0.3
    elif name == "translate_x":
        largest = 150.0 / 331.0 * shape[3]
    elif name == "translate_y":
        largest = 150.0 / 331.0 * shape[2]
    elif name == "rotate":
        largest = 30.0
    elif name == "posterize":
        return float(8 - round(level / 2.25))
    elif name == "solarize":
        return torch.linspace(255.0, 0.0, 10)[level].item()
    elif name in ("autocontrast", "equalize", "invert"):
        return 0.0
    else:
        largest = 0.9
    return sign * torch.linspace(0.0, largest, 10)[level].item()


def shift(images: Tensor, down: int, right: int) -> Tensor:
    """Move images by whole pixels, zeros coming in."""
    height, width = images.shape[2:]
    out = torch.zeros_like(images)
    if abs(down) < height and abs(right) < width:
        out[:, :, max(down, 0) : height + min(down, 0), max(right, 0) : width + min(right, 0)] = images[
            :, :, max(-down, 0) : height + min(-down, 0), max(-right, 0) : width + min(-right, 0)
        ]
    return out


def brightness(images: Tensor, amount: float) -> Tensor:
    return _bytes(images.to(torch.float32).mul_(1.0 + amount))


def color(images: Tensor, amount: float) -> Tensor:
    if images.shape[1] == 1:
        return images
    return _bytes(images.to(torch.float32).mul_(1.0 + amount).add_((1.0 - (1.0 + amount)) * _grey(images)))


def contrast(images: Tensor, amount: float) -> Tensor:
    mean = _grey(images).to(torch.float32).mean(dim=(1, 2, 3), keepdim=True)
    return _bytes(images.to(torch.float32).mul_(1.0 + amount).add_((1.0 - (1.0 + amount)) * mean))


def sharpness(images: Tensor, amount: float) -> Tensor:
    if min(images.shape[2:]) <= 2:
        return images
    height, width = images.shape[2:]
    # All images as one line of pixels: neighbours lie 1 and `width` apart, and whatever a sum takes from
    # another line or image lands on a border, which stays as it is.
    line = images.reshape(-1).to(torch.float32)
    across = line[:-2] + line[1:-1]
    across += line[2:]
    total = across[: -2 * width] + across[width:-width]
    total += across[2 * width :]
    centre = line[width + 1 : -width - 1]
    # A thirteenth of a whole number is never half-way between two: rounding has no ties to break.
    change = total.add_(centre, alpha=4).mul_(1.0 / 13.0).round_().sub_(centre)
    inner = _interior(height, width).to(images.device).repeat(len(images) * images.shape[1])
    smooth = line.clone()
    smooth[width + 1 : -width - 1] += change.mul_(inner[width + 1 : -width - 1])
    return _bytes(line.mul_(1.0 + amount).add_(smooth.mul_(1.0 - (1.0 + amount)))).reshape(images.shape)


def posterize(images: Tensor, bits: float) -> Tensor:
    kept: Tensor = images & (256 - 2 ** (8 - int(bits)))
    return kept


def solarize(images: Tensor, threshold: float) -> Tensor:
    bright: Tensor = images >= math.ceil(threshold)
    solarized: Tensor = images ^ bright.to(torch.uint8).mul_(255)
    return solarized


def invert(images: Tensor, _: float = 0.0) -> Tensor:
    inverted: Tensor = 255 - images
    return inverted


def autocontrast(images: Tensor, _: float = 0.0) -> Tensor:
    low = images.amin(dim=(2, 3), keepdim=True).to(torch.float32)
    high = images.amax(dim=(2, 3), keepdim=True).to(torch.float32)
    flat = high == low
    scale = torch.where(flat, 1.0, 255.0 / (high - low))
    return _bytes(images.to(torch.float32).sub_(torch.where(flat, 0.0, low)).mul_(scale))


def equalize(images: Tensor, _: float = 0.0) -> Tensor:
    count, channels, height, width = images.shape
    planes = count * channels
    offset = 256 * torch.arange(planes, dtype=torch.int32, device=images.device)
    index = images.reshape(planes, -1).to(torch.int32).add_(offset[:, None]).reshape(-1)
    histogram = torch.bincount(index, minlength=256 * planes).reshape(planes, 256)
    cumulative = histogram.cumsum(1)
    last = histogram.gather(1, images.reshape(planes, -1).amax(1, keepdim=True).long())
    step = (height * width - last) // 255
    table = (cumulative + step // 2) // step.clamp(min=1)
    table = torch.cat([torch.zeros_like(step), table[:, :-1]], dim=1).clamp_(0, 255)
    same = torch.arange(256, device=images.device).expand(planes, 256)
    table = torch.where(step == 0, same, table).to(torch.uint8)
    return table.reshape(-1).index_select(0, index).reshape(images.shape)


def rotate(images: Tensor, degrees: float) -> Tensor:
    angle = math.radians(degrees)
    sine, cosine = math.sin(angle), math.cos(angle)
    return _affine(images, (cosine, -sine, 0.0, sine, cosine, 0.0))


def shear_x(images: Tensor, amount: float) -> Tensor:
    return _affine(images, (1.0, amount, amount * 0.5 * images.shape[2], 0.0, 1.0, 0.0))


def shear_y(images: Tensor, amount: float) -> Tensor:
    return _affine(images, (1.0, 0.0, 0.0, amount, 1.0, amount * 0.5 * images.shape[3]))


def _affine(images: Tensor, matrix: tuple[float, ...]) -> Tensor:
    """Each pixel from the nearest one to where ``matrix`` sends it, zero if that is outside the image."""
    height, width = images.shape[2:]
    index, inside = _pixel_map(height, width, matrix)
    flat = images.reshape(len(images), -1, height * width).index_select(2, index.to(images.device))
    return flat.mul_(inside.to(images.device)).reshape(images.shape)


@cache
def _pixel_map(height: int, width: int, matrix: tuple[float, ...]) -> tuple[Tensor, Tensor]:
    """Source pixel of each pixel ``(H·W,)``, and 1 where it lies inside the image, 0 elsewhere.

    The matrix is 2 × 3 and acts on coordinates from the image's centre. A shear sends whole lines half-way
    between two pixels, where the last bit decides: so the steps and their float32 are torchvision's.
    """
    grid = torch.ones((1, height, width, 3))
    grid[..., 0] = torch.linspace(-0.5 * width + 0.5, 0.5 * width - 0.5, width)
    grid[..., 1] = torch.linspace(-0.5 * height + 0.5, 0.5 * height - 0.5, height)[:, None]
    theta = torch.tensor(matrix).reshape(1, 2, 3).transpose(1, 2) / torch.tensor([0.5 * width, 0.5 * height])
    sent = grid.reshape(1, -1, 3).bmm(theta)[0]
    column = ((sent[:, 0] + 1) * (width / 2) - 0.5).round().long()
    row = ((sent[:, 1] + 1) * (height / 2) - 0.5).round().long()
    inside = (column >= 0) & (column < width) & (row >= 0) & (row < height)
    index = row.clamp(0, height - 1) * width + column.clamp(0, width - 1)
    return index, inside.to(torch.uint8)


@cache
def _interior(height: int, width: int) -> Tensor:
    """1 inside an image, 0 on its border ``(H·W,)``."""
    inner = torch.zeros((height, width))
    inner[1:-1, 1:-1] = 1.0
    return inner.reshape(-1)


def _grey(images: Tensor) -> Tensor:
    """``(B, 1, H, W)`` uint8."""
    if images.shape[1] == 1:
        return images
    red, green, blue = images[:, 0:1], images[:, 1:2], images[:, 2:3]
    return (0.2989 * red + 0.587 * green + 0.114 * blue).to(torch.uint8)


def _bytes(values: Tensor) -> Tensor:
    return values.clamp_(0, 255).to(torch.uint8)


OPERATIONS: dict[str, Callable[[Tensor, float], Tensor]] = {
    "shear_x": shear_x,
    "shear_y": shear_y,
    "translate_x": lambda images, amount: shift(images, 0, int(amount)),
    "translate_y": lambda images, amount: shift(images, int(amount), 0),
    "rotate": rotate,
    "brightness": brightness,
    "color": color,
    "contrast": contrast,
    "sharpness": sharpness,
    "posterize": posterize,
    "solarize": solarize,
    "autocontrast": autocontrast,
    "equalize": equalize,
    "invert": invert,
}
