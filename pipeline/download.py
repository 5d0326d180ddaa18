"""Stage 1: raw data, verified, from its source or from a copy the user has."""

from __future__ import annotations

import sys
from pathlib import Path

from mn.data.catalog import read_catalog
from mn.data.fetch import Fetcher
from mn.data.keep import Keep
from mn.data.obtain import obtain, take
from mn.data.progress import shown
from mn.data.raw import fetch_raw
from mn.errors import MNError
from pipeline.own import TableOptions, add_own
from pipeline.params import CATALOG, find_entry, read_params
from pipeline.paths import raw_folder, store_folder


def download(
    root: Path,
    dataset: str,
    *,
    local: Path | None = None,
    fresh: bool = False,
    options: TableOptions | None = None,
) -> Path:
    """Fetch a data set into ``data/raw/<dataset>/``; ``local`` is the user's copy of its files.

    A set that the catalogue does not have is the user's own: it is added, with ``options`` for a table.
    ``fresh`` forgets what is kept of a set and downloads it anew.
    """
    folder = root / raw_folder(dataset)
    options = options or TableOptions()
    catalog = read_catalog(root / CATALOG)
    if local is not None and (dataset not in catalog or catalog[dataset].own):
        keep = Keep(store_folder(root) / "downloads")
        entry, content = add_own(root, dataset, local, options, keep)
        keep.lay_out(keep.recall(dataset) or [], folder)
        for line in (content.counts, *content.notes, f"{entry.task}, its entry is in {CATALOG}"):
            _tell(f"{dataset}: {line}")
        return folder
    if options.given:
        raise MNError(f"{dataset}: --target and the like are for a table of your own, given with --from")
    read_params(root)  # a mistake there is told of before anything is fetched
    entry = find_entry(root, dataset)
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
