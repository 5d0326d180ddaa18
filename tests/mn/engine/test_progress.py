"""Plain lines off a terminal, bars on one, and how long the stage still takes."""

from __future__ import annotations

import io
from dataclasses import dataclass

import pytest
from rich.console import Console
from rich.progress import Progress, TextColumn

from mn.engine.event import Event
from mn.engine.progress import PlannedRun, RunProgress, TimeLeft, in_words, run_progress

PLANNED = [PlannedRun("mn-seed0", "mn", 20), PlannedRun("mn-seed1", "mn", 20)]
EVENTS = [
    Event("mn-seed0", "start", 0, 20),
    *(Event("mn-seed0", "epoch", epoch, 20, f"val_loss {epoch}") for epoch in range(1, 21)),
    Event("mn-seed0", "end", note="trained in 1.0 s"),
    Event("mn-seed1", "start", 7, 20),
]


@dataclass
class Clock:
    """A clock that goes on when it is told to."""

    now: float = 1000.0

    def __call__(self) -> float:
        return self.now


@dataclass
class Stage:
    """Tells a listener of runs that take a given time."""

    time_left: TimeLeft
    clock: Clock

    @classmethod
    def of(cls, *planned: PlannedRun) -> Stage:
        clock = Clock()
        return cls(TimeLeft(planned, clock), clock)

    def start(self, *runs: str, epoch: int = 0) -> None:
        for run in runs:
            self.time_left(Event(run, "start", epoch, 10))

    def epochs(self, first: int, last: int, seconds: float, *runs: str) -> None:
        """Epochs of these runs side by side."""
        for epoch in range(first, last + 1):
            self.clock.now += seconds
            for run in runs:
                self.time_left(Event(run, "epoch", epoch, 10))

    def end(self, *runs: str) -> None:
        for run in runs:
            self.time_left(Event(run, "end"))


def planned(method: str, seeds: int, epochs: int = 10) -> list[PlannedRun]:
    return [PlannedRun(f"{method}{seed}", method, epochs) for seed in range(seeds)]


def test_nothing_is_said_of_the_time_left_before_the_first_epoch() -> None:
    stage = Stage.of(*planned("mn", 2))
    stage.start("mn0")
    assert stage.time_left.of_stage() is None


def test_runs_one_after_the_other_take_their_epochs_times_the_seconds_of_one() -> None:
    stage = Stage.of(*planned("mn", 3))
    stage.start("mn0")
    stage.epochs(1, 4, 2.0, "mn0")
    assert stage.time_left.of_stage() == pytest.approx((6 + 10 + 10) * 2.0)
    assert stage.time_left.of_run("mn0") == pytest.approx(6 * 2.0)


def test_time_left_runs_down_within_an_epoch() -> None:
    stage = Stage.of(*planned("mn", 1))
    stage.start("mn0")
    stage.epochs(1, 4, 10.0, "mn0")
    stage.clock.now += 7.0
    assert stage.time_left.of_stage() == pytest.approx(6 * 10.0 - 7.0)


def test_two_runs_side_by_side_take_half_the_time() -> None:
    stage = Stage.of(*planned("mn", 4))
    stage.start("mn0", "mn1")
    stage.epochs(1, 5, 10.0, "mn0", "mn1")
    assert stage.time_left.of_stage() == pytest.approx((5 + 5 + 10 + 10) * 10.0 / 2)


def test_last_run_is_not_shared_among_the_jobs() -> None:
    stage = Stage.of(*planned("mn", 3))
    stage.start("mn0", "mn1")
    stage.epochs(1, 10, 1.0, "mn0", "mn1")
    stage.end("mn0", "mn1")
    stage.start("mn2")
    assert stage.time_left.of_stage() == pytest.approx(10.0)


def test_runs_from_the_store_cost_nothing() -> None:
    stage = Stage.of(*planned("mn", 3))
    stage.end("mn0", "mn1")
    assert stage.time_left.of_stage() is None, "they say nothing about the speed"
    stage.start("mn2")
    stage.epochs(1, 5, 3.0, "mn2")
    assert stage.time_left.of_stage() == pytest.approx(5 * 3.0)


def test_epochs_before_an_interruption_do_not_count_into_the_speed() -> None:
    stage = Stage.of(*planned("mn", 1))
    stage.start("mn0", epoch=6)
    stage.epochs(7, 8, 5.0, "mn0")
    assert stage.time_left.of_stage() == pytest.approx(2 * 5.0)


@pytest.mark.parametrize("what", ["end", "failed"])
def test_epochs_of_a_run_that_stopped_early_are_not_waited_for(what: str) -> None:
    stage = Stage.of(*planned("mn", 2))
    stage.start("mn0")
    stage.epochs(1, 3, 1.0, "mn0")
    stage.time_left(Event("mn0", "end" if what == "end" else "failed"))
    assert stage.time_left.of_stage() == pytest.approx(10.0)


def test_run_of_a_method_that_was_seen_is_weighed_by_it_and_another_by_the_average() -> None:
    stage = Stage.of(*planned("vanilla", 2), *planned("mn", 2), *planned("mn_ifilm", 1))
    for run, seconds in (("vanilla0", 1.0), ("mn0", 3.0)):
        stage.start(run)
        stage.epochs(1, 10, seconds, run)
        stage.end(run)
    assert stage.time_left.of_stage() == pytest.approx(10 * 1.0 + 10 * 3.0 + 10 * 2.0)


def test_knn_counts_as_one_epoch_and_says_nothing_of_the_epochs_of_others() -> None:
    stage = Stage.of(*planned("knn", 2, epochs=0), *planned("mn", 1))
    stage.start("knn0")
    stage.clock.now += 4.0
    stage.end("knn0")
    assert stage.time_left.of_stage() is None
    stage.start("mn0")
    stage.epochs(1, 10, 1.0, "mn0")
    stage.end("mn0")
    assert stage.time_left.of_stage() == pytest.approx(4.0)


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (None, ""),
        (0.2, ""),
        (44.4, "44 s"),
        (720.0, "12 min"),
        (5399.0, "1 h 30 min"),
        (7800.0, "2 h 10 min"),
    ],
)
def test_time_is_told_as_roughly_as_it_is_known(seconds: float | None, words: str) -> None:
    assert in_words(seconds) == words


def test_plain_lines_tell_of_every_tenth_part_and_of_the_time_left(
    capsys: pytest.CaptureFixture[str],
) -> None:
    clock = Clock()
    with run_progress("train digits", PLANNED, clock=clock) as progress:
        for event in EVENTS:
            clock.now += 30.0 if event.what == "epoch" else 0.0
            progress(event)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "train digits [0/2] mn-seed0: starts"
    assert [line for line in lines if "epoch 2/20" in line] == [
        "train digits [0/2] mn-seed0: epoch 2/20  val_loss 2  about 19 min left"
    ]
    assert len([line for line in lines if "/20 " in line]) == 10
    assert lines[-2] == "train digits [1/2] mn-seed0: trained in 1.0 s"
    assert lines[-1] == "train digits [1/2] mn-seed1: goes on after epoch 7"


def test_plain_line_says_at_once_that_a_run_failed(capsys: pytest.CaptureFixture[str]) -> None:
    with run_progress("train digits", PLANNED) as progress:
        progress(EVENTS[0])
        progress(Event("mn-seed0", "failed", note="the loss became nan"))
    assert capsys.readouterr().out.splitlines()[-1] == (
        "train digits [0/2] mn-seed0: failed: the loss became nan"
    )


def test_terminal_shows_a_bar_for_the_stage_and_one_for_each_run_at_work() -> None:
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=120)
    columns = (TextColumn("{task.description} {task.completed}/{task.total} {task.fields[note]}"),)
    with Progress(*columns, console=console, auto_refresh=False) as bars:
        progress = RunProgress("train digits", PLANNED, bars)
        for event in EVENTS:
            progress(event)
            if event.epoch == 13:
                bars.refresh()
                assert "mn-seed0 13/20 val_loss 13" in screen.getvalue()
        described = [(task.description.strip(), task.completed) for task in bars.tasks]
    assert described == [("train digits", 1), ("mn-seed1", 7)]


def test_terminal_shows_the_time_left_in_the_bar_of_the_stage(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    screen, clock = Terminal(), Clock()
    monkeypatch.setattr("sys.stdout", screen)
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", "1")
    with run_progress("train digits", PLANNED, clock=clock) as progress:
        for event in EVENTS[:11]:  # ten epochs
            clock.now += 60.0 if event.what == "epoch" else 0.0
            progress(event)
    frames = screen.getvalue().splitlines()
    stage, run = (
        next(line for line in reversed(frames) if name in line) for name in ("train digits", "  mn-seed0")
    )
    assert "30 min left" in stage
    assert "10 min left" in run
