"""Images on their way into the HDF5 file: decoded, resized, written a block at a time.

Nothing here holds more than a block: the largest set of the paper goes through in the memory of a small one.
"""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import Protocol

import h5py
import numpy as np
from PIL import Image

from mn.data.archive import Collection
from mn.errors import MNError

RESIZE = "Pillow, bilinear with antialiasing"
_BLOCK = 256
_LARGEST = 200_000_000  # bytes of one encoded image
_MOST_PIXELS = 80_000_000  # less than where Pillow begins to warn
_FORMATS = ("JPEG", "PNG", "BMP", "GIF", "PPM", "WEBP")


class ImageRows(Protocol):
    """Images that are yet to be decoded: their final shape, and how to write some of them."""

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """``(N, C, H, W)``."""
        ...

    def write(self, dataset: h5py.Dataset, keep: np.ndarray) -> None:
        """Write rows ``keep`` (sorted) to rows 0, 1, … of ``dataset``."""
        ...


class ArrayImages:
    """Images that a reader has as one array ``(N, C, H, W)`` uint8."""

    def __init__(self, pixels: np.ndarray, size: int) -> None:
        self._pixels = pixels
        self._size = size

    @property
    def shape(self) -> tuple[int, int, int, int]:
        return (len(self._pixels), self._pixels.shape[1], self._size, self._size)

    def write(self, dataset: h5py.Dataset, keep: np.ndarray) -> None:
        for start in range(0, len(keep), 4 * _BLOCK):
            block = self._pixels[keep[start : start + 4 * _BLOCK]]
            dataset[start : start + len(block)] = self._resized(block)

    def _resized(self, block: np.ndarray) -> np.ndarray:
        if block.shape[2:] == (self._size, self._size):
            return block
        return np.stack(
            [np.stack([resize(Image.fromarray(channel), self._size) for channel in image]) for image in block]
        )


class MemberImages:
    """Encoded images that lie in a collection's archives under ``names``; row i is ``names[i]``."""

    def __init__(self, collection: Collection, names: list[str], size: int) -> None:
        self._collection = collection
        self._names = names
        self._size = size

    @property
    def shape(self) -> tuple[int, int, int, int]:
        return (len(self._names), 3, self._size, self._size)

    def write(self, dataset: h5py.Dataset, keep: np.ndarray) -> None:
        # An archive is read from end to end in its own order: each image goes to the row of its name.
        rows = {self._names[old]: new for new, old in enumerate(keep)}
        with ThreadPoolExecutor(os.cpu_count()) as pool:  # Pillow lets go of the GIL while it works
            for block in _blocks(self._encoded(rows)):
                images = list(pool.map(self._decode, block))
                _write_runs(dataset, [rows.pop(name) for name, _ in block], images)
        if rows:
            raise MNError(f"{next(iter(rows))}: was there and is gone; the files changed while being read")

    def _encoded(self, wanted: dict[str, int]) -> Iterator[tuple[str, bytes]]:
        for member in self._collection:
            if member.name in wanted:
                data = member.stream.read(_LARGEST + 1)
                if len(data) > _LARGEST:
                    raise MNError(f"{member.name}: an image of more than {_LARGEST:,} bytes; refused")
                yield member.name, data

    def _decode(self, item: tuple[str, bytes]) -> np.ndarray:
        name, data = item
        return decode(data, name, self._size)


def decode(data: bytes, name: str, size: int) -> np.ndarray:
    """An encoded image as ``(3, size, size)`` uint8 in RGB."""
    try:
        with Image.open(io.BytesIO(data), formats=_FORMATS) as image:
            if image.width * image.height > _MOST_PIXELS:
                raise Image.DecompressionBombError
            return np.ascontiguousarray(resize(_rgb(image), size).transpose(2, 0, 1))
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        raise MNError(f"{name}: an image of too many pixels; refused") from None
    except (OSError, ValueError, SyntaxError, EOFError) as error:
        raise MNError(f"{name}: not a readable image ({error}); remove it or get it again") from None


def resize(image: Image.Image, size: int) -> np.ndarray:
    """To ``size`` × ``size``, whatever the shape was (as the 64-pixel ImageNet does)."""
    if image.size != (size, size):
        image = image.resize((size, size), Image.Resampling.BILINEAR)
    return np.asarray(image)


def _rgb(image: Image.Image) -> Image.Image:
    if image.mode == "P" and "transparency" in image.info:
        image = image.convert("RGBA")  # Pillow's advice, and a warning otherwise
    return image if image.mode == "RGB" else image.convert("RGB")


def _write_runs(dataset: h5py.Dataset, rows: list[int], images: list[np.ndarray]) -> None:
    """Write images to their rows, neighbouring rows in one call: a call costs more than a small image."""
    order = sorted(range(len(rows)), key=rows.__getitem__)
    start = 0
    for end in range(1, len(order) + 1):
        if end == len(order) or rows[order[end]] != rows[order[end - 1]] + 1:
            first = rows[order[start]]
            dataset[first : first + end - start] = np.stack([images[i] for i in order[start:end]])
            start = end


def _blocks(items: Iterator[tuple[str, bytes]]) -> Iterator[list[tuple[str, bytes]]]:
    while block := list(islice(items, _BLOCK)):
        yield block
