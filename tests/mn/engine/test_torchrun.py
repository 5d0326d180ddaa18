"""Training shared by two processes: the figures of one, stopped together, and resumed by one."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from mn.engine.config import RunConfig
from mn.engine.distributed import Ranks
from mn.engine.event import Event
from mn.engine.fit import WEIGHTS
from mn.engine.interrupt import Interrupted, StopRequest
from mn.engine.runs import compute_runs
from mn.engine.store import RunStore
from mn.errors import MNError
from pipeline.params import plan
from pipeline.paths import processed_file, train_folder
from pipeline.train import train, trained_runs
from tests.conftest import ROOT, set_params
from tests.mn.engine.make import history, make_config, make_images, run
from tests.ranks import RankPool

ROWS = 23  # in batches of 6 the last has 5: two rows for one process, three for the other


@pytest.fixture(scope="module")
def two() -> Iterator[RankPool]:
    with RankPool(2) as pool:
        yield pool


def config_of(method: str, **settings: Any) -> RunConfig:
    # sgd: Adam makes a whole step of a gradient that is nothing but rounding, and so shows the order of sums
    return make_config(
        method, backbone="convnet4", batch_size=6, epochs=2, optimizer="sgd", lr=1e-2, lr_drops=[1],
        augment="light", batchnorm="recomputed", **settings,
    )  # fmt: skip


def fit_share(ranks: Ranks, config: RunConfig, folder: Path) -> list[dict[str, float]]:
    """The figures that this process tells of."""
    told: list[Event] = []
    run(folder, config, make_images(ROWS), told.append, ranks=ranks)
    return [event.figures for event in told if event.what == "epoch"]


def assert_same_figures(rows: list[dict[str, float]], expected: list[dict[str, float]]) -> None:
    for row, other in zip(rows, expected, strict=True):
        row.pop("rows_per_second", None)
        assert row == pytest.approx(other, abs=1e-5, rel=1e-5)


@pytest.mark.parametrize(
    ("method", "settings"),
    [
        ("vanilla", {}),
        ("mn", {"dropout_per": "batch"}),
        ("mn", {"dropout_per": "instance"}),
        ("maxl", {}),
    ],
    ids=["vanilla", "mn, dropout per batch", "mn, dropout per instance", "maxl"],
)
def test_two_processes_have_the_figures_of_one(
    two: RankPool, tmp_path: Path, method: str, settings: dict[str, Any]
) -> None:
    config = config_of(method, **settings)
    first, second = two.run(fit_share, config, tmp_path / "two")
    expected = history(run(tmp_path / "one", config, make_images(ROWS)))
    assert_same_figures(first, expected)
    assert_same_figures(second, expected)
    assert_same_figures(history(tmp_path / "two/output"), expected)


def fit_until_rank_1_stops(ranks: Ranks, config: RunConfig, folder: Path) -> str:
    stop = StopRequest(folder / f"stop-{ranks.rank}")

    def ask(event: Event) -> None:
        if event.epoch == 1 and not ranks.main:
            stop.file.touch()

    try:
        run(folder, config, make_images(ROWS), ask, stop=stop, ranks=ranks)
    except Interrupted as error:
        return str(error)
    return "finished"


def test_stop_asked_of_one_process_stops_all_and_one_process_goes_on(two: RankPool, tmp_path: Path) -> None:
    config = config_of("mn")
    folder = tmp_path / "two"
    assert (
        two.run(fit_until_rank_1_stops, config, folder)
        == ["mn-seed0 stopped in epoch 2; the same command goes on from there"] * 2
    )
    events: list[Event] = []
    resumed = load_file(run(folder, config, make_images(ROWS), events.append) / WEIGHTS)
    assert (events[0].what, events[0].epoch) == ("start", 1)
    undisturbed = load_file(run(tmp_path / "one", config, make_images(ROWS)) / WEIGHTS)
    assert resumed.keys() == undisturbed.keys()
    for name, expected in undisturbed.items():
        torch.testing.assert_close(resumed[name], expected, rtol=1e-5, atol=1e-5)


def compute_share(ranks: Ranks, root: Path) -> None:
    planned = plan(root, "spiral")
    compute_runs(
        planned.runs,
        root / processed_file("spiral"),
        RunStore(root / ".mn"),
        execution=planned.execution,
        progress=lambda _: None,
        ranks=ranks,
    )


@pytest.mark.parametrize(
    "setting", [{"jobs": 2}, {"scheduler": "tcp://127.0.0.1:8786"}], ids=["jobs", "scheduler"]
)
def test_runs_side_by_side_are_refused_in_one_line(
    two: RankPool, prepared: Callable[[str], Path], setting: dict[str, Any]
) -> None:
    root = prepared("spiral")
    set_params(root, train=setting)
    for outcome in two.outcomes(compute_share, root):
        assert isinstance(outcome, MNError)
        assert str(outcome) == (
            "under torchrun the processes share one run at a time: "
            "leave train.jobs at auto and train.scheduler at local"
        )


def histories(root: Path) -> dict[str, list[dict[str, float]]]:
    """What the train stage laid out, by run."""
    return {run.config.name: history(run.folder) for run in trained_runs(root, "spiral")}


def test_torchrun_with_the_command_gives_the_results_of_one_process(
    prepared: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    root = prepared("spiral")
    monkeypatch.setenv("MN_STORE", str(root / "store-of-one"))
    train(root, "spiral")
    expected = histories(root)
    told = capsys.readouterr().out.splitlines()

    monkeypatch.setenv("MN_STORE", str(root / "store-of-two"))
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    ended = subprocess.run(
        [sys.executable, *torchrun, "-m", "pipeline", "train", "spiral"],
        cwd=root,
        capture_output=True,
        text=True,
        timeout=600,
        env=os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
    )
    assert ended.returncode == 0, ended.stderr
    names = sorted(path.name for path in (root / train_folder("spiral")).iterdir())
    assert names == ["mn-seed0", "runs.json", "vanilla-seed0"]
    assert [run.record["processes"] for run in trained_runs(root, "spiral")] == [2, 2]
    for name, rows in histories(root).items():
        assert_same_figures(rows, expected[name])
    # The lines of one process, but for times and the last digits; then the command's own.
    lines = [line.partition(": ")[0] for line in ended.stdout.splitlines()]
    assert lines == [*(line.partition(": ")[0] for line in told), f"wrote {train_folder('spiral')}"]
