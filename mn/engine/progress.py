"""What a person sees while a stage works: bars on a terminal, plain lines anywhere else."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)


class RunProgress:
    """Follows the runs of a stage, and the epochs of the run at work."""

    def __init__(self, stage: str, total: int, *, bars: Progress | None) -> None:
        self._stage = stage
        self._total = total
        self._done = 0
        self._name = ""
        self._bars = bars
        self._all = bars.add_task(stage, total=total, note="") if bars else None
        self._one: TaskID | None = None

    def start(self, name: str, *, epochs: int, epoch: int) -> None:
        """A run begins, or goes on after ``epoch`` finished epochs."""
        self._name = name
        resumed = f"goes on after epoch {epoch}" if epoch else "starts"
        if self._bars:
            self._one = self._bars.add_task(f"  {name}", total=epochs, completed=epoch, note="")
        else:
            self._say(resumed)

    def epoch(self, epoch: int, epochs: int, figures: str) -> None:
        """An epoch ended. Off a terminal about ten of a run's epochs are told of."""
        if self._bars and self._one is not None:
            self._bars.update(self._one, completed=epoch, note=figures)
        elif epoch == epochs or epoch % max(1, epochs // 10) == 0:
            self._say(f"epoch {epoch}/{epochs}  {figures}")

    def end(self, name: str, note: str) -> None:
        """A run is finished, now or before."""
        self._name = name
        self._done += 1
        if self._bars and self._all is not None:
            if self._one is not None:
                self._bars.remove_task(self._one)
                self._one = None
            self._bars.update(self._all, completed=self._done, note=f"{name} {note}")
        else:
            self._say(note)

    def say(self, name: str, text: str) -> None:
        """A line that stays."""
        if self._bars:
            self._bars.console.print(f"{self._stage}: {name} {text}", highlight=False)
        else:
            self._name = name
            self._say(text)

    def _say(self, text: str) -> None:
        print(f"{self._stage} [{self._done}/{self._total}] {self._name}: {text}", flush=True)  # noqa: T201


@contextmanager
def run_progress(stage: str, total: int) -> Iterator[RunProgress]:
    """Progress over ``total`` runs, in the form that standard output can show."""
    if not sys.stdout.isatty():
        yield RunProgress(stage, total, bars=None)
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}", style="dim"),
    )
    with Progress(*columns, console=Console()) as bars:
        yield RunProgress(stage, total, bars=bars)
