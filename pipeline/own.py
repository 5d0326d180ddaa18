"""The user's own data: a table or a folder of pictures becomes an entry of the catalogue and a recipe.

Both are written into ``data/catalog.yaml`` and ``recipes.yaml`` themselves, not into a file beside them:
DVC then tracks them like any other set's, a queued experiment takes them along, and git records what an
experiment was run on. They are text to read and edit.
"""

from __future__ import annotations

import csv
import io
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
from ruamel.yaml import YAML

from mn.data.archive import Collection
from mn.data.catalog import Columns, Entry, File, SplitRule, read_catalog
from mn.data.keep import Keep
from mn.data.manifest import RawFile
from mn.data.obtain import look, take_files
from mn.data.prepare import all_splits
from mn.data.readers.content import Content
from mn.data.readers.table import column_is_numeric, find_column, has_header
from mn.errors import MNError
from mn.files import replacing
from mn.yamlfile import read_yaml
from pipeline.params import CATALOG, RECIPES

_NAME = re.compile(r"[a-z][a-z0-9_]{0,39}")
_TABLES = (".csv", ".tsv", ".txt", ".data", ".dat", ".parquet")


@dataclass(frozen=True)
class TableOptions:
    """What only the user can know of a table."""

    targets: list[str] = field(default_factory=list)
    drop: list[str] = field(default_factory=list)
    task: Literal["auto", "classification", "regression"] = "auto"
    header: bool | None = None
    missing: Literal["refuse", "drop"] = "refuse"
    categorical: Literal["refuse", "one-hot"] = "one-hot"

    @property
    def given(self) -> bool:
        return self != TableOptions()


def add_own(root: Path, name: str, source: Path, options: TableOptions, keep: Keep) -> tuple[Entry, Content]:
    """Check the user's data, keep it, and write its entry and its recipe; nothing is written if it fails."""
    if not _NAME.fullmatch(name):
        raise MNError(f"data set {name!r}: a name is small letters, digits and _, and starts with a letter")
    if not source.exists():
        raise MNError(f"--from {source}: no such file or folder")
    is_table = bool(options.targets) or (source.is_file() and _suffix(source) in _TABLES)
    if is_table and not options.targets:
        raise MNError(f"{name}: {source.name} is a table; say which column is predicted: --target COLUMN")
    entry = _table(name, source, options) if is_table else _images(name)
    files = take_files(entry, source, keep)
    content = look(entry, keep, files)
    entry = _described(entry, files, content)
    all_splits(
        entry, content, np.arange(len(content.y))
    )  # too few rows are told of now, not in a later stage
    keep.remember(name, files)
    template = "own_images" if not is_table else f"own_{entry.task}"
    _write_recipe(root / RECIPES, name, template)
    _write_entry(root / CATALOG, entry)
    return entry, content


def _table(name: str, source: Path, options: TableOptions) -> Entry:
    first, delimiter = _first_line(source, name)
    header = has_header(first) if options.header is None else options.header
    names = [cell.strip() for cell in first] if header else [str(i) for i in range(len(first))]
    if _suffix(source) == ".parquet":
        names, header = [], True
    targets = [_column(column, names, source.name) for column in options.targets]
    columns = Columns(
        targets=list(targets),
        header=header,
        delimiter=delimiter,
        drop=[_column(column, names, source.name) for column in options.drop],
        missing=options.missing,
        categorical=options.categorical,
    )
    task = options.task
    if task == "auto":
        words = len(targets) == 1 and not column_is_numeric(Collection([source]), columns, targets[0], name)
        task = "classification" if words else "regression"
    if task == "classification" and len(targets) != 1:
        raise MNError(f"{name}: a classification has one target, {len(targets)} were given")
    folds = task == "regression"
    return _entry(
        name,
        task=task,
        kind="table",
        format="table",
        targets=[str(target) for target in targets] if folds else [],
        columns=columns,
        num_classes=None if folds else 1_000_000,  # until they are counted
        split=SplitRule(seed=0, validation=0.15, folds=5) if folds else _SHARES,
    )


def _images(name: str) -> Entry:
    # The reader names the classes after the folders; until then any number will do.
    return _entry(
        name,
        task="classification",
        kind="images",
        format="folders",
        flip=True,
        num_classes=1_000_000,
        split=_SHARES,
    )


_SHARES = SplitRule(seed=0, validation=0.15, test=0.2)


def _entry(name: str, **values: Any) -> Entry:
    return Entry(
        name=name,
        title=f"{name} (your own)",
        source="files",
        citation="yours",
        licence="yours",
        own=True,
        **values,
    )


def _described(entry: Entry, files: list[RawFile], content: Content) -> Entry:
    """The entry with what was found: classes, rows, and the files by their hashes."""
    classes = content.classes or entry.classes
    if entry.task == "classification" and len(classes) < 2:
        raise MNError(
            f"{entry.name}: one class only ({', '.join(classes)}); a folder or a value for each is needed"
        )
    return entry.model_copy(
        update={
            "classes": classes,
            "num_classes": None,
            "rows": len(content.y),
            "files": [File(name=file.name, size=file.size, sha256=file.sha256) for file in files],
        }
    )


def _column(column: str, names: list[str], where: str) -> int | str:
    """A column as the catalogue has it: by name where the table has names, else by number."""
    if column in names:
        return column
    if names:
        number = find_column(column, names, where)
        return number - len(names) if column.startswith("-") else number
    return int(column) if re.fullmatch(r"-?\d+", column) else column


def _first_line(source: Path, name: str) -> tuple[list[str], str]:
    """The cells of a text table's first line, and the delimiter that gives the most of them."""
    for member in Collection([source]):
        head = member.stream.readline(1 << 20).decode("utf-8-sig", errors="replace").strip("\r\n")
        if not head.strip():
            raise MNError(f"{name}: {source.name} starts with an empty line; a table is needed")
        delimiter = max(",;\t|", key=head.count)
        return next(csv.reader([head], delimiter=delimiter, skipinitialspace=True)), delimiter
    raise MNError(f"{name}: {source} holds no table")


def _suffix(path: Path) -> str:
    name = path.name.lower()
    for end in (".gz", ".xz", ".bz2"):
        name = name.removesuffix(end)
    return Path(name).suffix


def _write_entry(path: Path, entry: Entry) -> None:
    content = entry.model_dump(exclude={"name"}, exclude_defaults=True)
    out = io.StringIO()
    yaml = YAML()
    yaml.default_flow_style = None
    yaml.width = 110
    yaml.dump({entry.name: content}, out)
    with replacing(path) as aside:
        aside.write_text(
            _with_section(path.read_text(encoding="utf-8"), entry.name, out.getvalue()), encoding="utf-8"
        )
        if read_catalog(aside).get(entry.name) != entry:
            raise MNError(
                f"{path}: the entry {entry.name} cannot be written; is there another in another form?"
            )


def _write_recipe(path: Path, name: str, template: str) -> None:
    """Add a recipe that takes everything from a template; one that is there may be edited, and stays."""
    if name in read_yaml(path):
        return
    section = f"# Yours; what stands below a key here replaces the template's.\n{name}:\n  <<: *{template}\n"
    with replacing(path) as aside:
        aside.write_text(_with_section(path.read_text(encoding="utf-8"), name, section), encoding="utf-8")
        read_yaml(aside)


def _with_section(text: str, name: str, section: str) -> str:
    """``text`` with the top-level key ``name`` replaced, or added at the end."""
    lines = text.splitlines()
    start = next((i for i, line in enumerate(lines) if line.startswith(f"{name}:")), None)
    if start is None:
        return f"{text.rstrip()}\n\n{section}"
    end = next(
        (i for i in range(start + 1, len(lines)) if lines[i] and not lines[i][0].isspace()), len(lines)
    )
    after = lines[end:]
    return "\n".join([*lines[:start], section.rstrip(), *([""] if after else []), *after]) + "\n"
