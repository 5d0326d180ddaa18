"""Formats that hold all images in a few arrays: IDX (MNIST), MATLAB (SVHN), CIFAR's binary and python."""

from __future__ import annotations

import io
import re
import struct
from math import prod
from pathlib import PurePosixPath
from typing import Any

import numpy as np

from mn.data.archive import Collection
from mn.data.catalog import Entry
from mn.data.images import ArrayImages
from mn.data.pickles import read_arrays
from mn.data.readers.content import TEST, TRAIN, Content
from mn.errors import MNError


def read_idx(entry: Entry, collection: Collection) -> Content:
    """MNIST's four files: ``train-`` and ``t10k-`` (or ``test-``), ``images`` and ``labels``."""
    found: dict[tuple[int, str], np.ndarray] = {}
    for member in collection:
        name = PurePosixPath(member.name).name
        match = re.match(r"(train|t10k|test)[-_.](images|labels)", name)
        if match:
            part = TRAIN if match[1] == "train" else TEST
            found[part, match[2]] = _idx(member.read(), name)
    images, labels, parts = [], [], []
    for part, word in ((TRAIN, "train"), (TEST, "t10k")):
        for what, dims in (("images", 3), ("labels", 1)):
            if (part, what) not in found:
                raise MNError(f"{entry.name}: no file {word}-{what}-… among its files")
            if found[part, what].ndim != dims:
                raise MNError(
                    f"{entry.name}: {word}-{what} has {found[part, what].ndim} dimensions, not {dims}"
                )
        if len(found[part, "images"]) != len(found[part, "labels"]):
            raise MNError(
                f"{entry.name}: {word} has {len(found[part, 'images'])} images "
                f"and {len(found[part, 'labels'])} labels"
            )
        images.append(found[part, "images"][:, None])
        labels.append(found[part, "labels"])
        parts.append(np.full(len(labels[-1]), part))
    return _content(entry, images, labels, parts)


def _idx(data: bytes, name: str) -> np.ndarray:
    """An IDX file of bytes: 0, 0, type 8, dimensions, sizes (big-endian), values."""
    if len(data) < 4 or data[:3] != b"\x00\x00\x08":
        raise MNError(f"{name}: not an IDX file of bytes")
    dims = data[3]
    start = 4 + 4 * dims
    if dims == 0 or len(data) < start:
        raise MNError(f"{name}: its header is cut short; get it again")
    shape = struct.unpack(f">{dims}I", data[4:start])
    if len(data) - start != prod(shape):
        raise MNError(
            f"{name}: {len(data) - start} bytes of values, its header says {prod(shape)}; get it again"
        )
    return np.frombuffer(data, np.uint8, offset=start).reshape(shape)


def read_mat(entry: Entry, collection: Collection) -> Content:
    """SVHN's ``train_32x32.mat`` and ``test_32x32.mat``: X ``(H, W, 3, N)``, y 1 to 10 with 10 for a zero."""
    from scipy.io import loadmat
    from scipy.io.matlab import MatReadError

    images, labels, parts = [], [], []
    for part, word in ((TRAIN, "train"), (TEST, "test")):
        data = _first(collection, entry, f"{word}_32x32.mat")
        try:
            content = loadmat(io.BytesIO(data), variable_names=["X", "y"])
            pixels, y = content["X"], content["y"].reshape(-1)
        except (MatReadError, KeyError, ValueError, TypeError, OSError, NotImplementedError) as error:
            raise MNError(f"{word}_32x32.mat: not SVHN's MATLAB file ({error}); get it again") from None
        if pixels.ndim != 4 or pixels.dtype != np.uint8 or pixels.shape[3] != len(y):
            raise MNError(f"{word}_32x32.mat: X is {pixels.dtype} {pixels.shape} for {len(y)} labels")
        images.append(pixels.transpose(3, 2, 0, 1))
        labels.append(y.astype(np.int64) % 10)
        parts.append(np.full(len(y), part))
    return _content(entry, images, labels, parts)


def read_cifar(entry: Entry, collection: Collection) -> Content:
    """CIFAR-10 and CIFAR-100, the binary form or the python one; the binary is taken where both are there.

    Batches may be missing (a part of the set is still a set); a test batch is needed.
    """
    coarse = bool(entry.coarse_classes)
    batches: dict[str, tuple[str, dict[str, np.ndarray]]] = {}
    for member in collection:
        name = PurePosixPath(member.name).name
        if match := re.fullmatch(r"(data_batch_\d+|test_batch|train|test)\.bin", name):
            batches[match[1]] = ("binary", _cifar_binary(member.read(), name, coarse))
        elif re.fullmatch(r"data_batch_\d+|test_batch|train|test", name) and name not in batches:
            batches[name] = ("python", _cifar_python(member.read(), name, coarse))
    test = [name for name in batches if name.startswith("test")]
    train = sorted(set(batches) - set(test), key=lambda name: (len(name), name))
    if not test or not train:
        what = "test batch" if train else "training batch" if test else "batch"
        raise MNError(
            f"{entry.name}: no {what} (data_batch_1, test_batch, train, test; .bin or python) was found"
        )
    parts = [np.full(len(batches[name][1]["y"]), TEST if name in test else TRAIN) for name in train + test]
    arrays = [batches[name][1] for name in train + test]
    content = _content(entry, [a["x"] for a in arrays], [a["y"] for a in arrays], parts)
    if coarse:
        content.extra["y_coarse"] = np.concatenate([a["y_coarse"] for a in arrays])
    content.attributes["form"] = " and ".join(sorted({form for form, _ in batches.values()}))
    return content


def _cifar_binary(data: bytes, name: str, coarse: bool) -> dict[str, np.ndarray]:
    """Records of a label (a coarse and a fine one for CIFAR-100) and 3 × 32 × 32 bytes."""
    head = 2 if coarse else 1
    if not data or len(data) % (head + 3072):
        raise MNError(
            f"{name}: {len(data)} bytes are no whole number of {head + 3072}-byte records; get it again"
        )
    records = np.frombuffer(data, np.uint8).reshape(-1, head + 3072)
    arrays: dict[str, np.ndarray] = {
        "x": records[:, head:].reshape(-1, 3, 32, 32),
        "y": records[:, head - 1].astype(np.int64),
    }
    if coarse:
        arrays["y_coarse"] = records[:, 0].astype(np.int64)
    return arrays


def _cifar_python(data: bytes, name: str, coarse: bool) -> dict[str, np.ndarray]:
    batch = read_arrays(data, name)
    try:
        batch = {key if isinstance(key, str) else key.decode(): value for key, value in batch.items()}
        x = np.asarray(batch["data"])
        arrays: dict[str, np.ndarray] = {"y": _labels(batch["fine_labels" if coarse else "labels"])}
        if coarse:
            arrays["y_coarse"] = _labels(batch["coarse_labels"])
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise MNError(f"{name}: not a CIFAR batch ({error})") from None
    if x.dtype != np.uint8 or x.shape != (len(arrays["y"]), 3072):
        raise MNError(
            f"{name}: data is {x.dtype} {x.shape} for {len(arrays['y'])} labels, not uint8 (N, 3072)"
        )
    arrays["x"] = x.reshape(-1, 3, 32, 32)
    return arrays


def _labels(values: Any) -> np.ndarray:
    labels = np.asarray(values)
    if labels.ndim != 1 or labels.dtype.kind not in "iu":
        raise ValueError("labels are not a list of whole numbers")
    return labels.astype(np.int64)


def _first(collection: Collection, entry: Entry, name: str) -> bytes:
    for member in collection:
        if PurePosixPath(member.name).name == name:
            return member.read()
    raise MNError(f"{entry.name}: no file {name} among its files")


def _content(
    entry: Entry, images: list[np.ndarray], labels: list[np.ndarray], parts: list[np.ndarray]
) -> Content:
    pixels = np.concatenate(images)
    return Content(
        x=ArrayImages(pixels, entry.image_size),
        y=np.concatenate(labels).astype(np.int64),
        part=np.concatenate(parts).astype(np.int64),
    )
