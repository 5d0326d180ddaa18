"""Stage 2: one HDF5 file with splits and statistics."""

from __future__ import annotations

from pathlib import Path

from mn.data.prepare import prepare
from pipeline.params import source
from pipeline.paths import processed_file, raw_folder


def preprocess(root: Path, dataset: str) -> Path:
    """Bring a data set into ``data/processed/<dataset>.h5``."""
    planned = source(root, dataset)
    target = root / processed_file(dataset)
    rows = planned.data.rows
    prepare(
        planned.entry,
        root / raw_folder(dataset) / f"{dataset}.npz",
        target,
        rows=None if rows == "all" else rows,
    )
    return target
