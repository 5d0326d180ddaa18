"""The catalogue of data sets: ``data/catalog.yaml`` as checked objects."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from mn.errors import MNError
from mn.yamlfile import read_yaml

Share = Annotated[float, Field(gt=0, lt=1)]
Column = int | str
Format = Literal[
    "idx", "mat", "cifar", "domains", "parts", "tiny_imagenet", "imagenet", "lists", "folders", "table"
]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class Generated(_Part):
    """How many points a class are generated for each part, and from which seed."""

    seed: int
    train: int
    validation: int
    test: int


class SplitRule(_Part):
    """How rows become training, validation and test rows.

    ``folds`` take turns as the test part. Otherwise ``test`` is a share of all rows, ``published`` (the part
    its authors set apart, or the rows after the first ``train_first``) or ``everything`` (a protocol that
    tests on its training rows too; only ever to compare). ``validation`` is a share of all rows if ``test``
    is, else of the rows that are not tested on, or ``published``.
    """

    seed: int
    validation: Share | Literal["published"]
    test: Share | Literal["published", "everything"] | None = None
    folds: Annotated[int, Field(ge=2)] | None = None
    by_group: bool = False
    train_first: Annotated[int, Field(ge=2)] | None = None

    @model_validator(mode="after")
    def _one_way(self) -> SplitRule:
        if (self.folds is None) == (self.test is None):
            raise ValueError("split needs either folds or a test part")
        if self.by_group and self.folds is None:
            raise ValueError("by_group needs folds")
        return self


class File(_Part):
    """A file as its authors publish it; ``urls`` are tried in turn."""

    name: str
    urls: list[str] = []
    size: int | None = None
    md5: str | None = None
    sha256: str | None = None


class Columns(_Part):
    """How a table's text becomes numbers. A column is given by its name, or its number from 0 or -1."""

    targets: list[Column] = Field(min_length=1)
    member: str | None = None  # a pattern for the table's file name, where the archive holds several
    header: bool = False
    delimiter: str = ","
    drop: list[Column] = []
    group: Column | None = None  # rows with the same value belong together (one patient); not an input
    missing: Literal["refuse", "drop"] = "refuse"
    categorical: Literal["refuse", "one-hot"] = "refuse"


class Entry(_Part):
    """One data set."""

    name: str
    title: str
    task: Literal["classification", "regression"]
    kind: Literal["images", "points", "table"]
    source: Literal["generated", "scikit-learn", "files"]
    citation: str
    licence: str
    checksum: str | None = Field(default=None, description="SHA-256 over the arrays, see mn.data.raw")
    classes: list[str] = []
    num_classes: int | None = None  # where the names come with the data
    coarse_classes: list[str] = []
    domains: list[str] = []
    targets: list[str] = []
    rows: int | None = None  # as published
    flip: bool = False
    split: SplitRule | None = None
    heldout: SplitRule | None = None
    generate: Generated | None = None
    format: Format | None = None
    files: list[File] = []
    other_forms: list[File] = []
    login: str | None = None  # what to do where the files sit behind a login
    image_size: int = 32
    columns: Columns | None = None
    own: bool = False  # added by a user with `pipeline download NAME --from …`

    @model_validator(mode="after")
    def _complete(self) -> Entry:
        if self.source == "files":
            if self.format is None or self.split is None:
                raise ValueError("a set of files needs format and split")
            if (self.format == "table") != (self.columns is not None):
                raise ValueError("format table, and no other, needs columns")
            if (self.kind == "images") == (self.format == "table"):
                raise ValueError(f"format {self.format} does not give {self.kind}")
        elif self.checksum is None:
            raise ValueError("checksum is missing")
        return self

    @property
    def split_names(self) -> list[str]:
        """The splits a model is trained on: ``main``, or one per fold."""
        if self.split and self.split.folds:
            return [f"fold{i}" for i in range(self.split.folds)]
        return ["main"]

    @property
    def heldout_names(self) -> list[str]:
        """The splits of the stricter protocol, where there is one: ``heldout``, or ``heldout0`` …"""
        if self.heldout is None:
            return []
        if self.heldout.folds:
            return [f"heldout{i}" for i in range(self.heldout.folds)]
        return ["heldout"]

    @property
    def count_classes(self) -> int:
        return len(self.classes) or self.num_classes or 0


def read_catalog(path: Path) -> dict[str, Entry]:
    """All entries by name."""
    return {name: parse_entry(path, name, content) for name, content in read_yaml(path).items()}


def parse_entry(path: Path, name: str, content: Any) -> Entry:
    """One entry, or an :class:`MNError` that names the file, the entry and the key."""
    try:
        return Entry.model_validate({"name": name, **content})
    except (ValidationError, TypeError) as error:
        if isinstance(error, ValidationError):
            first = error.errors(include_url=False)[0]
            where = ".".join(map(str, first["loc"]))
            detail = f"{where}: {first['msg']}" if where else first["msg"]
        else:
            detail = "a mapping of keys to values is needed"
        raise MNError(f"{path}: entry {name}: {detail}") from None
