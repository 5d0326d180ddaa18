"""Stage 1: raw data, verified by checksum."""

from __future__ import annotations

from pathlib import Path

from mn.data.raw import fetch_raw
from pipeline.params import source
from pipeline.paths import raw_folder


def download(root: Path, dataset: str) -> Path:
    """Fetch a data set into ``data/raw/<dataset>/``."""
    return fetch_raw(source(root, dataset).entry, root / raw_folder(dataset))
