"""The data sets of the catalogue, as the command line lists them."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console
from rich.table import Table

from mn.data.catalog import Entry, read_catalog
from mn.data.hdf5 import describe
from mn.data.keep import Keep
from mn.data.manifest import read_manifest
from mn.data.obtain import LOCAL
from mn.errors import MNError
from pipeline.params import CATALOG
from pipeline.paths import processed_file, raw_folder, store_folder


def show_datasets(root: Path) -> None:
    """Every set of the catalogue as a table: what it is, and what of it is here."""
    catalog = read_catalog(root / CATALOG)
    keep = Keep(store_folder(root) / "downloads")
    console = Console()
    if not console.is_terminal:
        console.width = 150  # a pipe has no width: keep a set on its line
    table = Table(box=None, pad_edge=False)
    for heading in (
        "data set",
        "task",
        "kind",
        "classes",
        "rows",
        "size",
        "downloaded",
        "preprocessed",
        "licence",
    ):
        right = heading in ("classes", "rows", "size")
        table.add_column(heading, justify="right" if right else "left", no_wrap=heading != "licence")
    for entry in catalog.values():
        table.add_row(
            entry.name + (" (yours)" if entry.own else ""),
            entry.task,
            entry.kind,
            str(entry.count_classes or "-"),
            f"{entry.rows:,}" if entry.rows else "-",
            _size(entry),
            _downloaded(root, entry, keep),
            _preprocessed(root, entry),
            entry.licence,
        )
    console.print(table)


def _size(entry: Entry) -> str:
    """What there is to download, as far as it was published."""
    sizes = [file.size for file in entry.files]
    if entry.source != "files":
        return "embedded"
    if not sizes or None in sizes:
        return "login" if entry.login else "?"
    return f"{sum(size for size in sizes if size) / 1e6:,.1f} MB"


def _downloaded(root: Path, entry: Entry, keep: Keep) -> str:
    folder = root / raw_folder(entry.name)
    if entry.source != "files":
        return "yes" if (folder / f"{entry.name}.npz").is_file() else "no"
    if folder.is_dir():
        try:
            files = read_manifest(folder, entry.name)
        except MNError:
            return "damaged"
        return "yes, your copy" if any(file.origin == LOCAL for file in files) else "yes"
    return "kept" if keep.recall(entry.name) is not None else "no"


def _preprocessed(root: Path, entry: Entry) -> str:
    path = root / processed_file(entry.name)
    if not path.is_file():
        return "no"
    try:
        found = describe(path)
    except (MNError, KeyError):
        return "damaged"
    rows, *shape = found["shape"]
    return f"{rows:,} × {'×'.join(map(str, shape))}"
