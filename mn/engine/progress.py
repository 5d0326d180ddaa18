"""What a person sees while a stage works: bars on a terminal, plain lines anywhere else; the time left."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)
from rich.table import Column
from rich.text import Text

from mn.engine.event import Event

Clock = Callable[[], float]


@dataclass(frozen=True)
class PlannedRun:
    """A run that a stage is to compute or to take from the store; ``epochs`` is 0 if its method has none."""

    name: str
    method: str
    epochs: int


class RunProgress:
    """Follows the runs of a stage. Call it with every event."""

    def __init__(
        self,
        stage: str,
        planned: Sequence[PlannedRun],
        bars: Progress | None,
        *,
        clock: Clock = time.monotonic,
    ) -> None:
        self._stage = stage
        self._total = len(planned)
        self._done = 0
        self._time_left = TimeLeft(planned, clock)
        self._bars = bars
        self._tasks: dict[str, TaskID] = {}
        if bars:
            self._tasks[""] = bars.add_task(stage, total=self._total, note="", left=self._time_left.of_stage)

    def __call__(self, event: Event) -> None:
        self._done += event.what == "end"
        self._time_left(event)
        if self._bars:
            self._draw(event, self._bars)
        elif text := self._line(event):
            # One write, so that the lines of processes that share an output do not mix.
            sys.stdout.write(f"{self._stage} [{self._done}/{self._total}] {event.run}: {text}\n")
            sys.stdout.flush()

    def _draw(self, event: Event, bars: Progress) -> None:
        if event.what in ("end", "failed"):
            if event.run in self._tasks:
                bars.remove_task(self._tasks.pop(event.run))
            note = event.note if event.what == "end" else f"failed: {event.note}"
            bars.update(self._tasks[""], completed=self._done, note=f"{event.run} {note}")
            return
        if event.run not in self._tasks:
            left = partial(self._time_left.of_run, event.run)
            self._tasks[event.run] = bars.add_task(f"  {event.run}", total=event.epochs, note="", left=left)
        bars.update(self._tasks[event.run], completed=event.epoch, note=event.note)

    def _line(self, event: Event) -> str:
        """Off a terminal about ten of a run's epochs are told of."""
        if event.what == "start":
            return f"goes on after epoch {event.epoch}" if event.epoch else "starts"
        if event.what == "end":
            return event.note
        if event.what == "failed":
            return f"failed: {event.note}"
        if event.epoch == event.epochs or event.epoch % max(1, event.epochs // 10) == 0:
            left = in_words(self._time_left.of_stage())
            parts = [f"epoch {event.epoch}/{event.epochs}", event.note, left and f"about {left} left"]
            return "  ".join(filter(None, parts))
        return ""


class TimeLeft:
    """How long the runs of a stage still take. Call it with every event.

    Work is counted in epochs; a method that has none is one epoch's worth. An epoch's seconds are the run's
    own, else those of runs of the same method, else the average of all: of epochs computed now, for what a
    resumed run did before and what is in the store cost nothing here. The seconds left of all runs are
    divided by how many runs were at work at a time so far, which accounts for jobs side by side, and for
    what passes between runs.
    """

    def __init__(self, planned: Iterable[PlannedRun], clock: Clock) -> None:
        self._clock = clock
        self._runs = {run.name: _Work(run) for run in planned}

    def __call__(self, event: Event) -> None:
        self._runs[event.run].follow(event, self._clock())

    def of_stage(self) -> float | None:
        """Seconds until the last run ends; None as long as nothing is known."""
        now = self._clock()
        left = [self._left(run, now) for run in self._runs.values()]
        known = [seconds for seconds in left if seconds is not None]
        if len(known) < len(left):
            return None
        # However many jobs there are, the longest run that is left takes its time.
        longest = max(known, default=0.0)
        started = [run for run in self._runs.values() if run.started is not None]
        busy = sum(run.busy(now) for run in started)
        if not busy:
            return longest
        elapsed = now - min(run.started for run in started if run.started is not None)
        return max(longest, sum(known) * elapsed / busy)

    def of_run(self, name: str) -> float | None:
        """Seconds until this run ends; None as long as nothing is known."""
        return self._left(self._runs[name], self._clock())

    def _left(self, run: _Work, now: float) -> float | None:
        if run.ended:
            return 0.0
        method = [other for other in self._runs.values() if other.planned.method == run.planned.method]
        # kNN's whole run says nothing about an epoch of the others.
        epochs = [other for other in self._runs.values() if other.planned.epochs]
        for group in ([run], method, epochs):
            computed = sum(other.computed for other in group)
            if computed:
                each = sum(other.seconds for other in group) / computed
                since = now - run.last if run.started is not None else 0.0
                return max(0.0, (run.size - run.epoch) * each - since)
        return None


class _Work:
    """What is known of one run."""

    def __init__(self, planned: PlannedRun) -> None:
        self.planned = planned
        self.size = max(1, planned.epochs)
        self.epoch = 0
        self.computed = 0  # epochs since the start that was seen, and
        self.seconds = 0.0  # the time they took
        self.started: float | None = None
        self.last = 0.0
        self.ended = False

    def follow(self, event: Event, now: float) -> None:
        if event.what == "start":
            self.started, self.epoch, self.computed, self.seconds = now, event.epoch, 0, 0.0
        elif event.what == "epoch":
            self._compute(event.epoch - self.epoch, now)
        else:
            if event.what == "end" and not self.planned.epochs:
                self._compute(1, now)
            self.ended = True
        self.last = now

    def busy(self, now: float) -> float:
        """The seconds it was at work."""
        return 0.0 if self.started is None else (self.last if self.ended else now) - self.started

    def _compute(self, epochs: int, now: float) -> None:
        self.epoch += epochs
        if self.started is not None:  # else it comes from the store
            self.computed += epochs
            self.seconds = now - self.started


def in_words(seconds: float | None) -> str:
    """A time to wait, as rough as it is known; nothing if it is unknown or over.

    Example:
        >>> in_words(44.2), in_words(754), in_words(8000)
        ('44 s', '13 min', '2 h 13 min')
    """
    if seconds is None or seconds < 0.5:
        return ""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"


class _TimeLeftColumn(ProgressColumn):
    """The time left of the stage, or of a run at work: it runs down between events."""

    def render(self, task: Task) -> Text:
        left = in_words(task.fields["left"]())
        return Text(f"{left} left" if left else "", style="progress.remaining")


@contextmanager
def run_progress(
    stage: str, planned: Sequence[PlannedRun], *, clock: Clock = time.monotonic
) -> Iterator[RunProgress]:
    """Progress over the planned runs, in the form that standard output can show."""
    if not sys.stdout.isatty():
        yield RunProgress(stage, planned, None, clock=clock)
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=16),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        _TimeLeftColumn(),
        # The note takes what is left of the line, and is what gets shorter in a narrow window.
        TextColumn(
            "{task.fields[note]}",
            style="dim",
            table_column=Column(ratio=1, no_wrap=True, overflow="ellipsis"),
        ),
    )
    with Progress(*columns, console=Console(), expand=True) as bars:
        yield RunProgress(stage, planned, bars, clock=clock)
