"""What every reader returns."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from mn.data.catalog import Entry
from mn.data.images import ImageRows
from mn.errors import MNError

TRAIN, VALIDATION, TEST = 0, 1, 2


@dataclass
class Content:
    """Rows in a fixed order, whatever order the archive has them in.

    Attributes:
        x: Images still to be decoded, or a table ``(N, d)``.
        y: Labels ``(N,)`` int64 or targets ``(N, t)`` float64.
        part: The part each row was published in (0 train, 1 validation, 2 test), if there are any.
        group: Rows with the same number belong together, if there are groups.
        extra: Further arrays of N rows, such as ``y_coarse`` or ``domain``.
        classes: Class names, where they come with the data.
        columns: Names of a table's inputs.
        attributes: What else is worth recording.
        notes: What a person should be told.
    """

    x: ImageRows | np.ndarray
    y: np.ndarray
    part: np.ndarray | None = None
    group: np.ndarray | None = None
    extra: dict[str, np.ndarray] = field(default_factory=dict)
    classes: list[str] = field(default_factory=list)
    columns: list[str] = field(default_factory=list)
    attributes: dict[str, object] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def check(self, entry: Entry) -> None:
        """Refuse what cannot be right; note what is only unexpected."""
        if len(self.y) == 0:
            raise MNError(f"{entry.name}: no rows were found; are these the files of {entry.title}?")
        if entry.task == "classification":
            known = len(self.classes) or entry.count_classes
            if self.y.min() < 0 or self.y.max() >= known:
                raise MNError(
                    f"{entry.name}: labels {self.y.min()} to {self.y.max()}, but {known} classes are known"
                )
        if entry.rows is not None and len(self.y) != entry.rows:
            self.notes.append(f"{len(self.y):,} rows here, {entry.rows:,} as published")

    @property
    def counts(self) -> str:
        """For a person: how many rows, of which parts."""
        text = f"{len(self.y):,} rows"
        if self.part is not None:
            names = ("train", "validation", "test")
            found = [f"{(self.part == i).sum():,} {name}" for i, name in enumerate(names) if i in self.part]
            text += f" ({', '.join(found)})"
        return text
