"""The data sets of the catalogue, as the command line names and lists them."""

from __future__ import annotations

import difflib
from pathlib import Path

from mn.data.catalog import Entry, read_catalog
from mn.errors import MNError
from pipeline.params import CATALOG


def find_entry(root: Path, dataset: str) -> Entry:
    """A data set's entry, or an error that names the nearest ones."""
    catalog = read_catalog(root / CATALOG)
    if dataset in catalog:
        return catalog[dataset]
    close = difflib.get_close_matches(dataset, catalog, n=1)
    hint = f"did you mean {close[0]}? " if close else ""
    raise MNError(
        f"data set {dataset}: not in {CATALOG}; {hint}It has {', '.join(catalog)}; "
        f"for your own: pipeline download {dataset} --from FILE_OR_FOLDER"
    )
