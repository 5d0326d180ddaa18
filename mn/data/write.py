"""Writing the HDF5 file of a data set, in the layout of :mod:`mn.data.hdf5`.

Apart from reading it, because what reads it is part of a run's identity and what wrote it is not: the file's
own hash is.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from mn.data.catalog import Entry
from mn.data.folds import Split
from mn.data.hdf5 import PARTS
from mn.data.images import ImageRows
from mn.files import replacing


def write_dataset(
    path: Path,
    entry: Entry,
    x: np.ndarray | ImageRows,
    y: np.ndarray,
    splits: dict[str, Split],
    provenance: dict[str, Any],
    *,
    keep: np.ndarray | None = None,
    extra: Mapping[str, np.ndarray] | None = None,
    attributes: Mapping[str, object] | None = None,
    limit: float | None = None,
) -> None:
    """Write a data set whole; the same content always gives the same bytes.

    Images that are still encoded are decoded now, those of rows ``keep`` (all, if None); every other array
    is of the rows kept already. ``limit`` is how many standard deviations from the mean an input of a table
    may lie.
    """
    with replacing(path) as aside, h5py.File(aside, "w", track_order=True) as file:
        if isinstance(x, np.ndarray):
            file.create_dataset("x", data=x)
        else:
            keep = np.arange(x.shape[0]) if keep is None else keep
            x.write(file.create_dataset("x", (len(keep), *x.shape[1:]), np.uint8), keep)
        file.create_dataset("y", data=y)
        for name, array in (extra or {}).items():
            file.create_dataset(name, data=array)
        for name, split in splits.items():
            group = file.create_group(f"splits/{name}", track_order=True)
            for part in PARTS:
                group.create_dataset(part, data=getattr(split, part))
            if isinstance(x, np.ndarray) and entry.kind != "images":
                _write_statistics(group, "x", x[split.train], one_scale=entry.kind == "points")
                if limit is not None:
                    group.create_dataset("x_limit", data=limit)
            if entry.task == "regression":
                _write_statistics(group, "y", y[split.train])
        file.attrs["name"] = entry.name
        file.attrs["task"] = entry.task
        file.attrs["kind"] = entry.kind
        file.attrs["classes"] = json.dumps(entry.classes, ensure_ascii=False)
        file.attrs["targets"] = json.dumps(entry.targets, ensure_ascii=False)
        file.attrs["flip"] = entry.flip
        file.attrs["provenance"] = json.dumps(provenance, sort_keys=True)
        for key, value in (attributes or {}).items():
            file.attrs[key] = json.dumps(value, ensure_ascii=False)


def _write_statistics(group: h5py.Group, name: str, rows: np.ndarray, *, one_scale: bool = False) -> None:
    """Mean and standard deviation per column, or one of each for points, whose axes share a unit."""
    axis = None if one_scale else 0
    mean, std = rows.mean(axis=axis, dtype=np.float64), rows.std(axis=axis, dtype=np.float64)
    # A constant column carries nothing: it becomes 0, not NaN.
    std = np.where(std > 1e-12 * np.maximum(1.0, np.abs(mean)), std, 1.0)
    columns = rows.shape[1]
    group.create_dataset(f"{name}_mean", data=np.broadcast_to(mean, columns))
    group.create_dataset(f"{name}_std", data=np.broadcast_to(std, columns))
