"""From a raw ``.npz`` to the HDF5 file: layout, splits, provenance."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np

from mn.data.catalog import Entry
from mn.data.folds import Split, holdout, kfold
from mn.data.hdf5 import write_dataset
from mn.errors import MNError
from mn.files import sha256


def prepare(entry: Entry, raw: Path, target: Path, *, rows: int | None = None) -> None:
    """Write ``target`` from the raw file; ``rows`` keeps that many, drawn with a fixed seed."""
    try:
        with np.load(raw, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
    except FileNotFoundError:
        raise MNError(f"{raw}: no such file; run: pipeline download {entry.name}") from None
    except (OSError, ValueError) as error:
        raise MNError(f"{raw}: cannot be read ({error}); download it again") from None

    if rows is not None and rows < len(arrays["x"]):
        keep = np.sort(np.random.default_rng(0).choice(len(arrays["x"]), rows, replace=False))
        arrays = {name: array[keep] for name, array in arrays.items()}
    x, y = arrays["x"], arrays["y"]
    if entry.kind == "images":
        x = _as_images(x)
    if entry.task == "regression":
        y = y.reshape(len(y), -1)
    try:
        splits = _splits(entry, y, arrays.get("part"))
    except ValueError as error:
        raise MNError(f"{entry.name}: {len(y)} rows cannot be split ({error}); use more") from None
    provenance: dict[str, Any] = {
        "source": entry.source,
        "raw_sha256": sha256(raw),
        "rows": "all" if rows is None else rows,
        "versions": {"h5py": h5py.__version__, "numpy": np.__version__},
    }
    write_dataset(target, entry, x, y, splits, provenance)


def _as_images(x: np.ndarray) -> np.ndarray:
    """Grey images in their own range ``(N, H, W)`` to uint8 over the full range, ``(N, 1, H, W)``."""
    scaled: np.ndarray = np.round(x * (255.0 / x.max())).astype(np.uint8)
    return scaled[:, None]


def _splits(entry: Entry, y: np.ndarray, part: np.ndarray | None) -> dict[str, Split]:
    if part is not None:
        train, validation, test = (np.flatnonzero(part == i) for i in range(3))
        return {"main": Split(train, validation, test)}
    rule = entry.split
    if rule is None or (rule.folds is None and rule.test is None):
        raise MNError(f"catalogue entry {entry.name}: split needs either folds or a share for test")
    if rule.folds:
        folds = kfold(len(y), folds=rule.folds, validation=rule.validation, seed=rule.seed)
        return dict(zip(entry.split_names, folds, strict=True))
    assert rule.test is not None
    return {"main": holdout(y, validation=rule.validation, test=rule.test, seed=rule.seed)}
