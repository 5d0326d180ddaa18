"""The one file format every data set is brought into, and every model is trained from.

=========================================  ==========================================================
``/x``                                     images ``(N, C, H, W)`` uint8; points, tables ``(N, d)`` float
``/y``                                     labels ``(N,)`` int64, or targets ``(N, t)`` float64
``/y_coarse``, ``/domain``                 further labels ``(N,)`` int64, where a set has them
``/splits/<name>/{train,validation,test}``  row numbers; ``<name>`` is ``main`` or ``fold0`` … (the paper's
                                           protocol), and ``heldout`` or ``heldout0`` … (a stricter one)
``/splits/<name>/{x,y}_{mean,std}``        statistics of that split's training rows (not for images)
``/splits/<name>/x_limit``                 how many standard deviations from the mean an input may lie
attributes                                 ``name task kind classes targets flip provenance``, and what a
                                           reader adds: ``coarse_classes domains columns wnids`` as JSON
=========================================  ==========================================================

Images lie in one piece, uncompressed: a row is read, or mapped into memory, at its offset. Values are stored
raw; :func:`mn.data.split.load_split` standardises with the split's statistics.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import h5py

from mn.errors import MNError

PARTS = ("train", "validation", "test")


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
