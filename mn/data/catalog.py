"""The catalogue of data sets: ``data/catalog.yaml`` as checked objects."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from mn.errors import MNError
from mn.yamlfile import read_yaml

Share = Annotated[float, Field(gt=0, lt=1)]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class Generated(_Part):
    """How many points a class are generated for each part, and from which seed."""

    seed: int
    train: int
    validation: int
    test: int


class SplitRule(_Part):
    """Shares of the rows for validation and test, or folds that take turns as the test part."""

    seed: int
    validation: Share
    test: Share | None = None
    folds: Annotated[int, Field(ge=2)] | None = None


class Entry(_Part):
    """One data set."""

    name: str
    title: str
    task: Literal["classification", "regression"]
    kind: Literal["images", "points", "table"]
    source: Literal["generated", "scikit-learn"]
    citation: str
    licence: str
    checksum: str = Field(description="SHA-256 over the arrays, see mn.data.raw")
    classes: list[str] = []
    targets: list[str] = []
    flip: bool = False
    split: SplitRule | None = None
    generate: Generated | None = None

    @property
    def split_names(self) -> list[str]:
        """The splits a model is trained on: ``main``, or one per fold."""
        if self.split and self.split.folds:
            return [f"fold{i}" for i in range(self.split.folds)]
        return ["main"]


def read_catalog(path: Path) -> dict[str, Entry]:
    """All entries by name."""
    return {name: _entry(path, name, content) for name, content in read_yaml(path).items()}


def _entry(path: Path, name: str, content: Any) -> Entry:
    try:
        return Entry.model_validate({"name": name, **content})
    except (ValidationError, TypeError) as error:
        if isinstance(error, ValidationError):
            first = error.errors(include_url=False)[0]
            detail = f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
        else:
            detail = "a mapping of keys to values is needed"
        raise MNError(f"{path}: entry {name}: {detail}") from None
