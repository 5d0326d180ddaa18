"""Tables: text with a delimiter (plain, gz, in an archive) or Parquet, as numbers."""

from __future__ import annotations

import csv
import fnmatch
import io
import warnings
from itertools import islice
from pathlib import PurePosixPath
from typing import IO

import numpy as np

from mn.data.archive import Collection, Member
from mn.data.catalog import Column, Columns, Entry
from mn.data.readers.content import Content
from mn.errors import MNError

_MISSING = frozenset(
    {"", "?", "na", "n/a", "nan", "null", "none", "inf", "-inf", "+inf", "infinity", "-infinity"}
)
_BLOCK = 4096
_MOST_CATEGORIES = 100
_SUFFIXES = (".csv", ".tsv", ".txt", ".data", ".dat", ".parquet")


def read_table(entry: Entry, collection: Collection) -> Content:
    """A table's inputs ``(N, d)`` and targets, all float64, in the file's order.

    A regression's targets are its ``columns.targets``; a classification has one, whose values are classes.
    """
    rule = entry.columns
    assert rule is not None
    member = _pick(entry.name, collection, rule)
    names, cells = _cells(member, rule)
    roles = Roles.of(names, rule, entry.name)
    kept, dropped = _complete(cells, roles.used, rule, member.name)
    classes: list[str] = []
    if entry.task == "classification":
        words = [str(word) for word in _text(cells[roles.targets[0]])[kept]]
        classes = entry.classes or _sorted_words(set(words))
        _refuse_class(entry, words, classes)
        y = np.array([classes.index(word) for word in words], dtype=np.int64)
    else:
        for column in roles.targets:
            if cells[column].dtype.kind != "f":
                raise MNError(
                    f"{member.name}: target {names[column]} is not a number: {_example(cells[column])!r}"
                )
        y = np.stack([cells[column][kept] for column in roles.targets], axis=1)
    x, columns = _inputs(cells, kept, names, roles.inputs, rule, member.name)
    content = Content(x=x, y=y, classes=classes, columns=columns)
    if roles.group is not None:
        content.group = np.unique(_text(cells[roles.group])[kept], return_inverse=True)[1].astype(np.int64)
    constant = [name for name, column in zip(columns, x.T, strict=True) if (column == column[0]).all()]
    if constant:
        content.notes.append(f"{len(constant)} constant columns, such as {constant[0]}: standardised to 0")
    if dropped:
        content.notes.append(f"{dropped:,} of {dropped + int(kept.sum()):,} rows with missing values dropped")
    content.attributes |= {"columns": columns, "rows_with_missing_values": dropped}
    return content


def column_is_numeric(collection: Collection, rule: Columns, column: Column, name: str) -> bool:
    """Whether a column of the one table in ``collection`` holds numbers (or missing values) only."""
    member = _pick(name, collection, rule)
    names, cells = _cells(member, rule)
    return cells[find_column(column, names, member.name)].dtype.kind == "f"


class Roles:
    """Which columns are targets, the group, inputs; each list holds column numbers."""

    def __init__(self, targets: list[int], group: int | None, inputs: list[int]) -> None:
        self.targets = targets
        self.group = group
        self.inputs = inputs
        self.used = sorted({*targets, *inputs, *([] if group is None else [group])})

    @classmethod
    def of(cls, names: list[str], rule: Columns, where: str) -> Roles:
        targets = [find_column(column, names, where) for column in rule.targets]
        group = None if rule.group is None else find_column(rule.group, names, where)
        out = {*targets, group, *(find_column(column, names, where) for column in rule.drop)}
        inputs = [i for i in range(len(names)) if i not in out]
        if not inputs:
            raise MNError(f"{where}: no column is left as an input")
        return cls(targets, group, inputs)


def find_column(column: Column, names: list[str], where: str) -> int:
    """The number of a column named by its header or by its number."""
    if isinstance(column, str):
        if names.count(column) == 1:
            return names.index(column)
        if column in names:
            raise MNError(
                f"{where}: {names.count(column)} columns are called {column!r}; give the column's number"
            )
        try:
            column = int(column)
        except ValueError:
            shown = ", ".join(names[:20]) + (" …" if len(names) > 20 else "")
            raise MNError(f"{where}: no column {column!r}; it has {shown}") from None
    if not -len(names) <= column < len(names):
        raise MNError(f"{where}: no column number {column}; it has {len(names)}, from 0 to {len(names) - 1}")
    return column % len(names)


def has_header(first: list[str]) -> bool:
    """A first line in which no cell is a number (or missing) is taken for names."""
    return all(not _is_number(cell) and cell.strip().lower() not in _MISSING for cell in first)


def _pick(dataset: str, collection: Collection, rule: Columns) -> Member:
    """The one table among the files, its content in memory."""
    found: list[Member] = []
    for member in collection:
        path = PurePosixPath(member.name)
        wanted = (
            fnmatch.fnmatch(path.name, rule.member)
            if rule.member
            else path.suffix.lower() in _SUFFIXES or (len(collection.paths) == 1 and "/" not in member.name)
        )
        if wanted and not path.name.startswith(".") and "__MACOSX" not in path.parts:
            found.append(Member(member.name, io.BytesIO(member.read())))
    if len(found) != 1:
        what = f"{len(found)} tables" if found else "no table"
        pattern = rule.member or ", ".join(f"*{suffix}" for suffix in _SUFFIXES)
        raise MNError(f"{dataset}: {what} ({pattern}) among its files; one is needed")
    return found[0]


def _cells(member: Member, rule: Columns) -> tuple[list[str], list[np.ndarray]]:
    """Column names, and each column: float64 with NaN for missing, or text if any cell is not a number."""
    if member.name.lower().endswith(".parquet"):
        return _parquet(member)
    stream = member.stream
    head = stream.readline().decode("utf-8-sig", errors="replace") if rule.header else ""
    fast = _all_numbers(stream, rule.delimiter)
    if fast is not None:
        names = next(csv.reader([head], delimiter=rule.delimiter, skipinitialspace=True), [])
        if not rule.header or len(names) == fast.shape[1]:
            return [name.strip() for name in names] or [str(i) for i in range(fast.shape[1])], list(fast.T)
    stream.seek(0)
    # utf-8-sig takes off the mark that spreadsheets put at the start of a file
    with io.TextIOWrapper(stream, encoding="utf-8-sig", newline="") as text:
        try:
            return _csv(text, member.name, rule)
        except UnicodeDecodeError:
            raise MNError(f"{member.name}: not a text file in UTF-8") from None
        except csv.Error as error:
            raise MNError(f"{member.name}: not a table ({error})") from None


def _all_numbers(stream: IO[bytes], delimiter: str) -> np.ndarray | None:
    """NumPy's own parser, an order of magnitude faster, where every cell is a finite number."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # an empty file is told of by the slower way
            values = np.loadtxt(
                stream, np.float64, comments=None, delimiter=delimiter, ndmin=2, encoding="utf-8"
            )
    except (ValueError, UnicodeDecodeError):
        return None
    return values if values.size and np.isfinite(values).all() else None


def _csv(text: io.TextIOWrapper, name: str, rule: Columns) -> tuple[list[str], list[np.ndarray]]:
    lines = csv.reader(text, delimiter=rule.delimiter, skipinitialspace=True)
    rows = (row for row in lines if row)
    first = next(rows, None)
    if first is None:
        raise MNError(f"{name}: the table is empty")
    width = len(first)
    header = [cell.strip() for cell in first] if rule.header else [str(i) for i in range(width)]
    pieces: list[list[np.ndarray]] = []
    block = [] if rule.header else [first]
    while block := block + list(islice(rows, _BLOCK)):
        for row in block:
            if len(row) != width:
                raise MNError(
                    f"{name} line {lines.line_num}: {len(row)} cells where the first line has {width}"
                )
        pieces.append([_column(cells) for cells in zip(*block, strict=True)])
        block = []
    if not pieces:
        raise MNError(f"{name}: the table has a header and no rows")
    return header, [_joined(list(column)) for column in zip(*pieces, strict=True)]


def _column(cells: tuple[str, ...]) -> np.ndarray:
    stripped = [cell.strip() for cell in cells]
    try:
        return np.array([float("nan") if cell.lower() in _MISSING else float(cell) for cell in stripped])
    except ValueError:
        return np.array(["" if cell.lower() in _MISSING else cell for cell in stripped], dtype=object)


def _joined(pieces: list[np.ndarray]) -> np.ndarray:
    if all(piece.dtype.kind == "f" for piece in pieces):
        return np.concatenate(pieces)
    return np.concatenate([_text(piece) for piece in pieces])


def _text(column: np.ndarray) -> np.ndarray:
    """A column as words; a whole number has no point, a missing value is empty."""
    if column.dtype.kind != "f":
        return column
    words = [
        "" if value != value else str(int(value)) if value == int(value) else repr(float(value))
        for value in column
    ]
    return np.array(words, dtype=object)


def _parquet(member: Member) -> tuple[list[str], list[np.ndarray]]:
    try:
        import pyarrow.parquet as parquet
    except ImportError:
        raise MNError(
            f"{member.name}: Parquet needs pyarrow; install it: pip install 'meta-neighborhoods[parquet]'"
        ) from None
    try:
        table = parquet.read_table(io.BytesIO(member.read()))
    except (OSError, ValueError) as error:
        raise MNError(f"{member.name}: not a readable Parquet file ({error})") from None
    columns = [
        _column(tuple("" if cell is None else str(cell) for cell in column.to_pylist()))
        for column in table.columns
    ]
    return list(table.column_names), columns


def _complete(cells: list[np.ndarray], used: list[int], rule: Columns, name: str) -> tuple[np.ndarray, int]:
    """Which rows have a value in every column that is used, and how many do not."""
    missing = np.zeros(len(cells[0]), dtype=bool)
    for column in used:
        values = cells[column]
        missing |= np.isnan(values) if values.dtype.kind == "f" else values == ""
    count = int(missing.sum())
    if count and rule.missing == "refuse":
        raise MNError(
            f"{name}: {count:,} of {len(missing):,} rows have missing values, the first is row "
            f"{int(missing.argmax()) + 1}; fill them in, or drop them with missing: drop (--missing drop)"
        )
    if count == len(missing):
        raise MNError(f"{name}: every row has a missing value")
    return ~missing, count


def _inputs(
    cells: list[np.ndarray], kept: np.ndarray, names: list[str], inputs: list[int], rule: Columns, where: str
) -> tuple[np.ndarray, list[str]]:
    """Input columns as numbers; a column of words becomes one column for each word."""
    columns: list[np.ndarray] = []
    labels: list[str] = []
    for i in inputs:
        values = cells[i][kept]
        if values.dtype.kind == "f":
            columns.append(values)
            labels.append(names[i])
            continue
        words = sorted(set(values))
        if rule.categorical == "refuse" or len(words) > _MOST_CATEGORIES:
            raise MNError(
                f"{where}: column {names[i]} holds {len(words)} different words (such as {words[0]!r}); "
                + (
                    f"leave it out (--drop {names[i]})"
                    if len(words) > _MOST_CATEGORIES
                    else f"encode it (--categorical one-hot) or leave it out (--drop {names[i]})"
                )
            )
        for word in words:
            columns.append((values == word).astype(np.float64))
            labels.append(f"{names[i]}={word}")
    return np.stack(columns, axis=1), labels


def _refuse_class(entry: Entry, words: list[str], classes: list[str]) -> None:
    unknown = sorted(set(words) - set(classes))
    if unknown:
        raise MNError(f"{entry.name}: a row's class is {unknown[0]!r}; known: {', '.join(classes[:12])}")


def _sorted_words(words: set[str]) -> list[str]:
    """In order of value if all are numbers, else in order of letters."""
    return sorted(words, key=float) if all(_is_number(word) for word in words) else sorted(words)


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _example(column: np.ndarray) -> str:
    return next(str(cell) for cell in column if not _is_number(str(cell)))
