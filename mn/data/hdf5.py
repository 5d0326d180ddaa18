"""The one file format every data set is brought into, and every model is trained from.

=========================================  ==========================================================
``/x``                                     images ``(N, C, H, W)`` uint8; points, tables ``(N, d)`` float
``/y``                                     labels ``(N,)`` int64, or targets ``(N, t)`` float64
``/splits/<name>/{train,validation,test}``  row numbers; ``<name>`` is ``main`` or ``fold0`` …
``/splits/<name>/{x,y}_{mean,std}``        statistics of that split's training rows (not for images)
attributes                                 ``name task kind classes targets flip provenance``
=========================================  ==========================================================

Values are stored raw; :func:`mn.data.split.load_split` standardises with the split's statistics.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from mn.data.catalog import Entry
from mn.data.folds import Split
from mn.errors import MNError
from mn.files import replacing

PARTS = ("train", "validation", "test")


def write_dataset(
    path: Path,
    entry: Entry,
    x: np.ndarray,
    y: np.ndarray,
    splits: dict[str, Split],
    provenance: dict[str, Any],
) -> None:
    """Write a data set whole; the same content always gives the same bytes."""
    with replacing(path) as aside, h5py.File(aside, "w", track_order=True) as file:
        file.create_dataset("x", data=x)
        file.create_dataset("y", data=y)
        for name, split in splits.items():
            group = file.create_group(f"splits/{name}", track_order=True)
            for part in PARTS:
                group.create_dataset(part, data=getattr(split, part))
            if entry.kind != "images":
                _write_statistics(group, "x", x[split.train], one_scale=entry.kind == "points")
            if entry.task == "regression":
                _write_statistics(group, "y", y[split.train])
        file.attrs["name"] = entry.name
        file.attrs["task"] = entry.task
        file.attrs["kind"] = entry.kind
        file.attrs["classes"] = json.dumps(entry.classes, ensure_ascii=False)
        file.attrs["targets"] = json.dumps(entry.targets, ensure_ascii=False)
        file.attrs["flip"] = entry.flip
        file.attrs["provenance"] = json.dumps(provenance, sort_keys=True)


def _write_statistics(group: h5py.Group, name: str, rows: np.ndarray, *, one_scale: bool = False) -> None:
    """Mean and standard deviation per column, or one of each for points, whose axes share a unit."""
    axis = None if one_scale else 0
    mean, std = rows.mean(axis=axis, dtype=np.float64), rows.std(axis=axis, dtype=np.float64)
    # A constant column carries nothing: it becomes 0, not NaN.
    std = np.where(std > 1e-12 * np.maximum(1.0, np.abs(mean)), std, 1.0)
    columns = rows.shape[1]
    group.create_dataset(f"{name}_mean", data=np.broadcast_to(mean, columns))
    group.create_dataset(f"{name}_std", data=np.broadcast_to(std, columns))


def describe(path: Path) -> dict[str, Any]:
    """A data set's attributes, shape and split sizes, without reading its rows."""
    with open_dataset(path) as file:
        return {
            **{key: file.attrs[key] for key in ("name", "task", "kind")},
            "classes": json.loads(file.attrs["classes"]),
            "targets": json.loads(file.attrs["targets"]),
            "provenance": json.loads(file.attrs["provenance"]),
            "shape": tuple(file["x"].shape),
            "splits": {
                name: {part: len(group[part]) for part in PARTS} for name, group in file["splits"].items()
            },
        }


def open_dataset(path: Path) -> h5py.File:
    """Open a data set for reading, or say in one line why that is not possible."""
    try:
        return h5py.File(path, "r")
    except FileNotFoundError:
        raise MNError(f"{path}: no such file; run: pipeline preprocess {path.stem}") from None
    except OSError as error:
        raise MNError(f"{path}: not a readable HDF5 file ({error}); preprocess it again") from None
