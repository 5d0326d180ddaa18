"""Runs killed with SIGKILL at any moment end with the very weights of undisturbed ones."""

from __future__ import annotations

import random
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import torch

from mn.engine.config import RunConfig
from mn.engine.event import Event
from mn.engine.interrupt import Interrupted, StopRequest
from tests.conftest import ROOT
from tests.mn.engine.make import assert_equal_weights, history, make_config, make_images, run

ROWS, EPOCH, STEPS = 20, 3, 9  # in batches of 8 an epoch has 3 steps, the last a smaller one


def config_of(method: str) -> RunConfig:
    return make_config(
        method, backbone="convnet4", epochs=3, lr=1e-3, augment="light", batchnorm="recomputed", keep="best"
    )


@dataclass(frozen=True)
class Counted(StopRequest):
    """Asked once a step, after its loss is known and before its checkpoint is saved: counts that.

    Asks for a stop at step ``stops_at`` if there is one.
    """

    stops_at: int = -1
    steps: list[int] = field(default_factory=list)

    @property
    def made(self) -> bool:
        self.steps.append(len(self.steps) + 1)
        return len(self.steps) == self.stops_at


class Told(Counted):
    """Writes a line for every step; at step ``stops_at`` waits for the end that another process makes."""

    @property
    def made(self) -> bool:
        stopping = super().made
        sys.stdout.write(f"step {self.steps[-1]}\n")
        sys.stdout.flush()
        if stopping:
            sys.stdin.read()
        return False


def train_until_killed(folder: str, method: str, waits_at: int) -> None:
    """In a process of its own."""
    torch.set_num_threads(1)
    stop = Told(Path(folder) / "stop", stops_at=waits_at)
    run(Path(folder), config_of(method), make_images(ROWS), stop=stop)


def kill(folder: Path, method: str, *, after: int, waits_at: int) -> None:
    """Start a run and kill it when it tells of step ``after``, wherever it is by then up to ``waits_at``."""
    code = (
        f"from {__name__} import train_until_killed as train; train({str(folder)!r}, {method!r}, {waits_at})"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert f"step {after}\n" in process.stdout, "it ended by itself"
        process.kill()


def drawn(seed: int) -> int:
    """A step that has a checkpoint before it, and steps after it."""
    return random.Random(seed).randrange(2, STEPS)  # noqa: S311


@pytest.mark.parametrize(
    ("method", "after", "waits_at"),
    [("mn", EPOCH + 2, EPOCH + 2), ("mn", drawn(1), STEPS), ("maxl", drawn(2), STEPS)],
    ids=["mn in the middle of an epoch", "mn", "maxl"],
)
def test_killed_run_goes_on_to_the_same_weights(
    tmp_path: Path, method: str, after: int, waits_at: int
) -> None:
    config, data = config_of(method), make_images(ROWS)
    kill(tmp_path / "killed", method, after=after, waits_at=waits_at)
    stop = Counted(tmp_path / "stop")
    resumed = run(tmp_path / "killed", config, data, stop=stop)
    # What was computed when step ``after`` was told of is saved, but perhaps for that step itself.
    assert len(stop.steps) <= STEPS - (after - 1)
    undisturbed = run(tmp_path / "undisturbed", config, data)
    assert_equal_weights(undisturbed, resumed)
    assert history(undisturbed) == history(resumed)


def test_truncated_checkpoint_falls_back_to_the_one_before(tmp_path: Path) -> None:
    config, data = config_of("mn"), make_images(ROWS)
    undisturbed = run(tmp_path / "undisturbed", config, data)
    folder = tmp_path / "cut"
    with pytest.raises(Interrupted):
        run(folder, config, data, stop=Counted(tmp_path / "stop", stops_at=EPOCH + 2))
    newest = folder / "checkpoint.pt"
    newest.write_bytes(newest.read_bytes()[: newest.stat().st_size // 2])
    stop, events = Counted(tmp_path / "stop"), list[Event]()
    resumed = run(folder, config, data, events.append, stop=stop)
    assert (events[0].what, events[0].epoch) == ("start", 1)
    assert len(stop.steps) == STEPS - (EPOCH + 1), "the step of the lost checkpoint is computed again"
    assert_equal_weights(undisturbed, resumed)
