"""Progress of one long transfer: a bar with speed and time left on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Protocol

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)


class Meter(AbstractContextManager["Meter"], Protocol):
    """Told where a transfer starts and of every step."""

    def start(self, done: int, total: int | None) -> None: ...

    def advance(self, count: int) -> None: ...


class silent(AbstractContextManager["silent"]):
    """A meter that shows nothing."""

    def __init__(self, name: str) -> None:
        self.name = name

    def start(self, done: int, total: int | None) -> None:
        """Nothing to show."""

    def advance(self, count: int) -> None:
        """Nothing to show."""

    def __exit__(self, *_: object) -> None:
        return None


class shown(AbstractContextManager["shown"]):
    """A meter in the form that standard output can show."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._bar = None
        self._done, self._total, self._told = 0, 0, -1
        self._began = time.monotonic()
        self._first = 0
        if sys.stdout.isatty():
            self._bar = Progress(
                TextColumn("{task.description}"),
                BarColumn(bar_width=24),
                DownloadColumn(),
                TransferSpeedColumn(),
                TimeRemainingColumn(),
                console=Console(),
            )

    def __enter__(self) -> shown:
        if self._bar:
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar:
            self._bar.stop()

    def start(self, done: int, total: int | None) -> None:
        self._done, self._total, self._first = done, total or 0, done
        if self._bar:
            self._task = self._bar.add_task(self._name, total=total, completed=done)
        elif done:
            self._say(f"goes on from {done / 1e6:.1f} MB")

    def advance(self, count: int) -> None:
        self._done += count
        if self._bar:
            self._bar.advance(self._task, count)
            return
        tenth = 10 * self._done // self._total if self._total else self._done // 100_000_000
        if tenth > self._told:
            self._told = tenth
            seconds = max(time.monotonic() - self._began, 1e-3)
            speed = (self._done - self._first) / seconds
            left = f", {(self._total - self._done) / speed:.0f} s left" if self._total and speed else ""
            of = f" of {self._total / 1e6:.1f}" if self._total else ""
            self._say(f"{self._done / 1e6:.1f}{of} MB, {speed / 1e6:.1f} MB/s{left}")

    def _say(self, text: str) -> None:
        sys.stdout.write(f"{self._name}: {text}\n")
        sys.stdout.flush()
