"""The train stage on tiny data: what it takes from the store, what it lays out, how it stops."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from mn.engine.fit import WEIGHTS
from mn.errors import MNError
from pipeline.paths import store_folder, train_folder
from pipeline.train import train, trained_runs
from tests.conftest import ROOT, set_params


def test_second_call_takes_everything_from_the_store(
    prepared: Callable[[str], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    root = prepared("spiral")
    train(root, "spiral")
    before = [run.key for run in trained_runs(root, "spiral")]
    capsys.readouterr()
    train(root, "spiral")
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2
    assert all("from the store" in line for line in lines)
    assert [run.key for run in trained_runs(root, "spiral")] == before


def test_change_of_the_dictionary_leaves_vanilla_alone(
    prepared: Callable[[str], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    root = prepared("diabetes")
    train(root, "diabetes")
    set_params(root, model={"S": 9})
    capsys.readouterr()
    train(root, "diabetes")
    ends = [line for line in capsys.readouterr().out.splitlines() if "store" in line or "trained" in line]
    trained = {line.split("] ")[1].split("-")[0] for line in ends if "trained" in line}
    stored = {line.split("] ")[1].split("-")[0] for line in ends if "store" in line}
    assert (trained, stored) == ({"mn"}, {"knn", "vanilla"})


def test_runs_side_by_side_equal_runs_one_by_one(prepared: Callable[[str], Path]) -> None:
    root = prepared("spiral")
    set_params(root, train={"epochs": 1})
    train(root, "spiral")
    alone = {run.config.name: load_file(run.folder / WEIGHTS) for run in trained_runs(root, "spiral")}
    (root / ".mn").rename(root / ".mn-alone")
    set_params(root, train={"jobs": 2})
    train(root, "spiral")
    for run in trained_runs(root, "spiral"):
        together = load_file(run.folder / WEIGHTS)
        assert all(torch.equal(together[name], alone[run.config.name][name]) for name in together)


def test_results_hold_the_runs_that_the_parameters_name(prepared: Callable[[str], Path]) -> None:
    root = prepared("spiral")
    train(root, "spiral")
    set_params(root, methods=["mn"])
    train(root, "spiral")
    folder = root / train_folder("spiral")
    assert sorted(path.name for path in folder.iterdir()) == ["mn-seed0", "runs.json"]
    record = json.loads((folder / "mn-seed0" / "run.json").read_text())
    assert record["config"]["dictionary"]["S"] == 8
    assert set(record["versions"]) >= {"python", "torch"}


def test_failed_run_does_not_lose_the_others(prepared: Callable[[str], Path]) -> None:
    """At this rate the network's weights overflow; kNN has no rate and goes on."""
    root = prepared("diabetes")
    set_params(root, methods=["vanilla", "knn"], train={"lr": 1e30, "clip": 0.0, "optimizer": "sgd"})
    with pytest.raises(MNError, match=r"vanilla-fold\d-seed0: the loss became (nan|inf) at iteration"):
        train(root, "diabetes")
    assert not (root / train_folder("diabetes")).exists()
    finished = list((root / ".mn/runs").iterdir())
    assert len(finished) == 5, "the five folds of kNN"


def _start(root: Path, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", "from pipeline.cli import main; main()", *arguments],
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize("jobs", [1, 2])
def test_ctrl_c_ends_cleanly_and_the_next_call_goes_on(prepared: Callable[[str], Path], jobs: int) -> None:
    root = prepared("spiral")
    set_params(root, train={"epochs": 100, "jobs": jobs, "checkpoint_seconds": 1000.0})
    process = _start(root, "train", "spiral")
    assert process.stdout is not None
    for line in process.stdout:
        if "epoch 10/100" in line:
            process.send_signal(signal.SIGINT)
            break
    _, err = process.communicate()
    assert process.returncode == 130
    assert err == "stopped; the same command goes on from here\n"
    assert not (root / train_folder("spiral")).exists()
    assert [path.name for path in (root / ".mn").iterdir() if path.name.startswith("stop")] == []

    again = _start(root, "train", "spiral")
    out, err = again.communicate()
    assert again.returncode == 0, err
    assert "goes on after epoch" in out


def test_queued_experiment_shares_the_store_of_its_project(tmp_path: Path) -> None:
    project = tmp_path / "project"
    copy = project / ".dvc/tmp/exps/standalone/tmpabc"
    copy.mkdir(parents=True)
    assert store_folder(copy) == project / ".mn"
    assert store_folder(project) == project / ".mn"


def test_environment_variable_names_the_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MN_STORE", str(tmp_path / "elsewhere"))
    assert store_folder(tmp_path / "project") == tmp_path / "elsewhere"
