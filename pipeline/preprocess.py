"""Stage 2: one HDF5 file with splits and statistics."""

from __future__ import annotations

import sys
from pathlib import Path

from mn.data.prepare import prepare
from mn.yamlfile import read_yaml
from pipeline.params import RECIPES, find_entry, read_params, source
from pipeline.paths import processed_file, raw_folder


def preprocess(root: Path, dataset: str) -> Path:
    """Bring a data set into ``data/processed/<dataset>.h5``."""
    entry = find_entry(root, dataset)
    target = root / processed_file(dataset)
    prepare(entry, root / raw_folder(dataset), target, rows=_rows(root, dataset), tell=_tell)
    return target


def _rows(root: Path, dataset: str) -> int | None:
    """How many rows to keep. A set without a recipe (nothing is trained on it yet) keeps all by default."""
    if dataset in read_yaml(root / RECIPES):
        rows = source(root, dataset).data.rows
    else:
        rows = read_params(root).data.rows  # type: ignore[attr-defined]
    return rows if isinstance(rows, int) else None


def _tell(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()
