"""What a run tells of its progress. Apart from how it is shown, which is no part of a run's code."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True)
class Event:
    """Something that happened in a run: it began (or went on after ``epoch``), ended an epoch, ended, failed.

    ``figures`` is the history's row of the epoch that ended. ``history`` holds the rows that no event told
    of: at the start those from before an interruption, at the end all of a run that was not computed now.
    """

    run: str
    what: Literal["start", "epoch", "end", "failed"]
    epoch: int = 0
    epochs: int = 0
    note: str = ""
    figures: dict[str, float] = field(default_factory=dict)
    history: list[dict[str, float]] = field(default_factory=list)
