"""Stage 1: raw data, verified, from its source or from a copy the user has."""

from __future__ import annotations

import sys
from pathlib import Path

from mn.data.fetch import Fetcher
from mn.data.keep import Keep
from mn.data.obtain import obtain, take
from mn.data.progress import shown
from mn.data.raw import fetch_raw
from mn.errors import MNError
from pipeline.datasets import find_entry
from pipeline.paths import raw_folder, store_folder


def download(root: Path, dataset: str, *, local: Path | None = None, fresh: bool = False) -> Path:
    """Fetch a data set into ``data/raw/<dataset>/``; ``local`` is the user's own copy of its files.

    ``fresh`` forgets what is kept of it and downloads anew.
    """
    entry = find_entry(root, dataset)
    folder = root / raw_folder(dataset)
    if entry.source != "files":
        if local is not None:
            raise MNError(f"{dataset}: comes with the software ({entry.source}); run it without --from")
        return fetch_raw(entry, folder)
    keep = Keep(store_folder(root) / "downloads")
    if fresh:
        keep.forget(dataset)
    if local is not None:
        obtained = take(entry, local, keep, tell=_tell)
    else:
        obtained = obtain(entry, keep, Fetcher(keep, meter=shown), tell=_tell)
    keep.lay_out(obtained.files, folder)
    if obtained.summary:
        _tell(f"{dataset}: {obtained.summary}")
    return folder


def _tell(line: str) -> None:
    sys.stdout.write(line + "\n")
