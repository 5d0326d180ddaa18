"""Plain lines off a terminal, bars on one."""

from __future__ import annotations

import io

import pytest
from rich.console import Console
from rich.progress import Progress, TextColumn

from mn.engine.event import Event
from mn.engine.progress import RunProgress, run_progress

EVENTS = [
    Event("mn-seed0", "start", 0, 20),
    *(Event("mn-seed0", "epoch", epoch, 20, f"val_loss {epoch}") for epoch in range(1, 21)),
    Event("mn-seed0", "end", note="trained in 1.0 s"),
    Event("mn-seed1", "start", 7, 20),
]


def test_plain_lines_tell_of_every_tenth_part(capsys: pytest.CaptureFixture[str]) -> None:
    with run_progress("train digits", 2) as progress:
        for event in EVENTS:
            progress(event)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "train digits [0/2] mn-seed0: starts"
    assert [line for line in lines if "epoch 2/20" in line] == [
        "train digits [0/2] mn-seed0: epoch 2/20  val_loss 2"
    ]
    assert len([line for line in lines if "/20 " in line]) == 10
    assert lines[-2] == "train digits [1/2] mn-seed0: trained in 1.0 s"
    assert lines[-1] == "train digits [1/2] mn-seed1: goes on after epoch 7"


def test_terminal_shows_a_bar_for_the_stage_and_one_for_each_run_at_work() -> None:
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=120)
    columns = (TextColumn("{task.description} {task.completed}/{task.total} {task.fields[note]}"),)
    with Progress(*columns, console=console, auto_refresh=False) as bars:
        progress = RunProgress("train digits", 2, bars)
        for event in EVENTS:
            progress(event)
            if event.epoch == 13:
                bars.refresh()
                assert "mn-seed0 13/20 val_loss 13" in screen.getvalue()
        described = [(task.description.strip(), task.completed) for task in bars.tasks]
    assert described == [("train digits", 1), ("mn-seed1", 7)]
