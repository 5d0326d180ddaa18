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
from rich.table import Column

from mn.engine.event import Event


class RunProgress:
    """Follows the runs of a stage. Call it with every event."""

    def __init__(self, stage: str, total: int, bars: Progress | None) -> None:
        self._stage = stage
        self._total = total
        self._done = 0
        self._bars = bars
        self._tasks: dict[str, TaskID] = {}
        if bars:
            self._tasks[""] = bars.add_task(stage, total=total, note="")

    def __call__(self, event: Event) -> None:
        self._done += event.what == "end"
        if self._bars:
            self._draw(event, self._bars)
        elif text := self._line(event):
            # One write, so that the lines of processes that share an output do not mix.
            sys.stdout.write(f"{self._stage} [{self._done}/{self._total}] {event.run}: {text}\n")
            sys.stdout.flush()

    def _draw(self, event: Event, bars: Progress) -> None:
        if event.what == "end":
            if event.run in self._tasks:
                bars.remove_task(self._tasks.pop(event.run))
            bars.update(self._tasks[""], completed=self._done, note=f"{event.run} {event.note}")
            return
        if event.run not in self._tasks:
            self._tasks[event.run] = bars.add_task(f"  {event.run}", total=event.epochs, note="")
        bars.update(self._tasks[event.run], completed=event.epoch, note=event.note)

    def _line(self, event: Event) -> str:
        """Off a terminal about ten of a run's epochs are told of."""
        if event.what == "start":
            return f"goes on after epoch {event.epoch}" if event.epoch else "starts"
        if event.what == "end":
            return event.note
        if event.epoch == event.epochs or event.epoch % max(1, event.epochs // 10) == 0:
            return f"epoch {event.epoch}/{event.epochs}  {event.note}"
        return ""


@contextmanager
def run_progress(stage: str, total: int) -> Iterator[RunProgress]:
    """Progress over ``total`` runs, in the form that standard output can show."""
    if not sys.stdout.isatty():
        yield RunProgress(stage, total, None)
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=16),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        # The note takes what is left of the line, and is what gets shorter in a narrow window.
        TextColumn(
            "{task.fields[note]}",
            style="dim",
            table_column=Column(ratio=1, no_wrap=True, overflow="ellipsis"),
        ),
    )
    with Progress(*columns, console=Console(), expand=True) as bars:
        yield RunProgress(stage, total, bars)
