"""The curves of runs at work, as DVC will read them."""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from mn.engine.event import Event
from mn.engine.live import LiveMetrics
from mn.engine.progress import PlannedRun

PLANNED = [
    PlannedRun("vanilla-seed0", "vanilla", 3),
    PlannedRun("mn-seed0", "mn", 3),
    PlannedRun("knn-seed0", "knn", 0),
]


@dataclass
class Clock:
    now: float = 0.0
    tick: float = 0.0  # what every look at it takes

    def __call__(self) -> float:
        self.now += self.tick
        return self.now


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the curves go, in what DVCLive takes for a DVC project that the command was called in."""
    (tmp_path / ".dvc").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path / "live/spiral"


def row(epoch: int, loss: float, **more: float) -> dict[str, float]:
    return {"epoch": epoch, "iteration": 10 * epoch, "val_loss": loss, **more}


def ended(run: str, epoch: int, loss: float, **more: float) -> Event:
    return Event(run, "epoch", epoch, 3, figures=row(epoch, loss, **more))


def points(folder: Path, figure: str) -> list[tuple[Any, ...]]:
    rows = json.loads((folder / f"plots/custom/{figure}.json").read_text(encoding="utf-8"))
    assert [list(row) for row in rows] == [["run", "method", "epoch", figure]] * len(rows)
    return [tuple(row.values()) for row in rows]


def test_interleaved_runs_are_lines_of_one_plot_per_figure(folder: Path) -> None:
    with LiveMetrics(folder, PLANNED) as live:
        live(Event("vanilla-seed0", "start", 0, 3))
        live(Event("mn-seed0", "start", 0, 3))
        live(ended("mn-seed0", 1, 0.9, alpha=0.1))
        live(ended("vanilla-seed0", 1, 0.8))
        live(ended("vanilla-seed0", 2, 0.7))
        live(ended("mn-seed0", 2, 0.5, alpha=0.2))
        live(Event("knn-seed0", "end"))
    assert points(folder, "val_loss") == [
        ("vanilla-seed0", "vanilla", 1, 0.8),
        ("vanilla-seed0", "vanilla", 2, 0.7),
        ("mn-seed0", "mn", 1, 0.9),
        ("mn-seed0", "mn", 2, 0.5),
    ]
    assert points(folder, "alpha") == [("mn-seed0", "mn", 1, 0.1), ("mn-seed0", "mn", 2, 0.2)]
    assert sorted(path.name for path in (folder / "plots/custom").iterdir()) == [
        "alpha.json",
        "val_loss.json",
    ]
    metrics = json.loads((folder / "metrics.json").read_text(encoding="utf-8"))
    assert metrics["mn-seed0"] == row(2, 0.5, alpha=0.2)


def test_resumed_run_is_shown_from_its_first_epoch_on(folder: Path) -> None:
    with LiveMetrics(folder, PLANNED) as live:
        live(Event("mn-seed0", "start", 2, 3, history=[row(1, 0.9), row(2, 0.8)]))
        live(ended("mn-seed0", 3, 0.7))
        live(Event("mn-seed0", "end"))
    assert [point[2:] for point in points(folder, "val_loss")] == [(1, 0.9), (2, 0.8), (3, 0.7)]


def test_run_that_starts_over_loses_what_it_told_before(folder: Path) -> None:
    """A worker was killed after epoch 2; its checkpoint is of epoch 1."""
    with LiveMetrics(folder, PLANNED) as live:
        live(Event("mn-seed0", "start", 0, 3))
        live(ended("mn-seed0", 1, 0.9))
        live(ended("mn-seed0", 2, 0.8))
        live(Event("mn-seed0", "start", 1, 3, history=[row(1, 0.9)]))
        live(ended("mn-seed0", 2, 0.8))
    assert [point[2] for point in points(folder, "val_loss")] == [1, 2]


def test_run_from_the_store_is_shown_whole(folder: Path) -> None:
    with LiveMetrics(folder, PLANNED) as live:
        live(Event("mn-seed0", "end", history=[row(1, 0.9), row(2, 0.8)]))
    assert [point[2:] for point in points(folder, "val_loss")] == [(1, 0.9), (2, 0.8)]


def test_curves_are_there_during_the_run_but_not_written_at_every_epoch(folder: Path) -> None:
    clock = Clock()
    with LiveMetrics(folder, PLANNED, clock=clock) as live:
        live(Event("mn-seed0", "start", 0, 3))
        live(ended("mn-seed0", 1, 0.9))
        assert len(points(folder, "val_loss")) == 1
        live(ended("mn-seed0", 2, 0.8))
        assert len(points(folder, "val_loss")) == 1
        clock.now += 2.0
        live(ended("mn-seed0", 3, 0.7))
        assert len(points(folder, "val_loss")) == 3


def test_writing_that_takes_long_is_done_the_less_often(folder: Path) -> None:
    clock = Clock(tick=1.0)
    with LiveMetrics(folder, PLANNED, clock=clock) as live:
        live(ended("mn-seed0", 1, 0.9))
        clock.now += 10.0
        live(ended("mn-seed0", 2, 0.8))
        assert len(points(folder, "val_loss")) == 1, "a second of writing is a twentieth of twenty"
        clock.now += 10.0
        live(ended("mn-seed0", 3, 0.7))
        assert len(points(folder, "val_loss")) == 3


def test_curves_of_the_training_before_are_gone(folder: Path) -> None:
    for run in ("mn-seed0", "vanilla-seed0"):
        with LiveMetrics(folder, PLANNED) as live:
            live(ended(run, 1, 0.9))
    assert [point[0] for point in points(folder, "val_loss")] == ["vanilla-seed0"]
    assert "mn-seed0" not in json.loads((folder / "metrics.json").read_text(encoding="utf-8"))


def test_figure_that_is_no_number_is_left_out_of_its_curve(folder: Path) -> None:
    with LiveMetrics(folder, PLANNED) as live:
        live(ended("mn-seed0", 1, 0.9))
        live(ended("mn-seed0", 2, float("nan")))
    assert [point[2] for point in points(folder, "val_loss")] == [1]


def test_failure_is_told_in_one_line_and_stops_nothing(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    folder.parent.mkdir()
    folder.write_text("a file in the place of the folder", encoding="utf-8")
    with LiveMetrics(folder, PLANNED) as live:
        live(ended("mn-seed0", 1, 0.9))
        live(ended("mn-seed0", 2, 0.8))
    told = capfd.readouterr().err.splitlines()
    assert len(told) == 1
    assert told[0].startswith(f"no more live metrics in {folder}: ")


def test_nothing_else_is_written_or_said(
    folder: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a token DVCLive would send every step over the network, and say that it could not."""
    project = folder.parents[1]
    monkeypatch.setenv("DVC_STUDIO_TOKEN", "token")
    monkeypatch.setenv("DVC_STUDIO_REPO_URL", "nobody/nothing")
    monkeypatch.setenv("DVC_STUDIO_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("DVC_ROOT", str(project))  # as in a stage of `dvc repro`
    with LiveMetrics(folder, PLANNED) as live:
        live(ended("mn-seed0", 1, 0.9))
    written = {path.name for path in project.rglob("*") if path.is_file() and ".dvc" not in path.parts}
    assert written == {"val_loss.json", "metrics.json"}
    assert capfd.readouterr() == ("", "")


def test_git_repository_without_dvc_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    subprocess.run(["git", "init", "--quiet"], cwd=tmp_path, check=True)
    monkeypatch.chdir(tmp_path)
    with LiveMetrics(tmp_path / "live/spiral", PLANNED) as live:
        live(ended("mn-seed0", 1, 0.9))
    assert [path.name for path in tmp_path.iterdir()] == [".git"]
