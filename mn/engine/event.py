"""What a run tells of its progress. Apart from how it is shown, which is no part of a run's code."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Event:
    """Something that happened in a run: it began (or went on after ``epoch``), ended an epoch, ended."""

    run: str
    what: Literal["start", "epoch", "end"]
    epoch: int = 0
    epochs: int = 0
    note: str = ""
