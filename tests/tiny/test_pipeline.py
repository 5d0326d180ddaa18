"""The whole pipeline on tiny data through the real ``dvc``, in a clone whose path has a space.

The steps build on each other, as they do for a person: one test walks them in order.
"""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import torch
from safetensors.torch import load_file

from mn.engine.fit import WEIGHTS
from tests.conftest import set_params
from tests.tiny.project import DATASETS, Clone, make_clone

STAGES = 5 * len(DATASETS) + 1


def stages_run(output: str) -> list[str]:
    return [line.split("'")[1] for line in output.splitlines() if line.startswith("Running stage ")]


def runs_told(output: str, word: str) -> set[str]:
    """The methods of the runs whose line says ``word``."""
    told = (line for line in output.splitlines() if line.startswith("train ") and word in line)
    return {line.split("] ")[1].split("-")[0] for line in told}


def test_from_a_fresh_clone_to_a_report_and_on(tmp_path: Path) -> None:
    clone = make_clone(tmp_path / "a clone")

    assert len(stages_run(clone.run("dvc", "repro"))) == STAGES
    assert (clone.root / "report/index.html").stat().st_size > 10_000
    metrics = {dataset: clone.read(f"results/{dataset}/metrics.json") for dataset in DATASETS}
    assert 0 <= metrics["spiral"]["mn"]["accuracy"]["mean"] <= 100
    assert metrics["diabetes"]["mn"]["mse"]["mean"] > 0
    assert set(metrics["diabetes"]["knn"]["mse"]) == {"mean", "std"}
    assert clone.run("git", "status", "--porcelain").split() == ["??", "dvc.lock"]

    assert stages_run(clone.run("dvc", "repro")) == [], "a second repro runs nothing"
    clone.commit("Results of S=8")

    variant = clone.run("dvc", "exp", "run", "-S", "model.S=9")
    assert "train@spiral" in stages_run(variant)
    assert "download@spiral" not in stages_run(variant)
    assert runs_told(variant, "trained in") == {"mn"}
    assert runs_told(variant, "from the store") == {"vanilla", "knn"}
    _shown_by_dvc(clone)

    back = clone.run("dvc", "exp", "run", "-S", "model.S=8")
    assert stages_run(back) == [], "what was computed before comes from DVC's cache"
    assert {dataset: clone.read(f"results/{dataset}/metrics.json") for dataset in DATASETS} == metrics

    figures = clone.root / "mn/analysis/metrics.py"
    figures.write_text(figures.read_text() + "\n\nUNUSED = 1\n")
    edited = stages_run(clone.run("dvc", "repro"))
    assert "evaluate@spiral" in edited
    assert [stage for stage in edited if stage.startswith(("train", "preprocess", "download"))] == []


def _shown_by_dvc(clone: Clone) -> None:
    """Metrics, their change, plots and experiments: each shows the numbers it is for."""
    assert "mn.accuracy.mean" in clone.run("dvc", "metrics", "show")
    assert "mn.accuracy.mean" in clone.run("dvc", "metrics", "diff")
    assert "model.S" in clone.run("dvc", "params", "diff")
    experiments = clone.run("dvc", "exp", "show", "--csv", "--no-pager")
    header, *rows = experiments.splitlines()
    assert {"mn.accuracy.mean", "knn.mse.std", "model.S"} <= set(header.split(","))
    assert len(rows) >= 3, "workspace, commit, experiment"
    clone.run("dvc", "plots", "show")
    page = (clone.root / "dvc_plots/index.html").read_text(encoding="utf-8")
    for part in ("Validation loss on spiral", "Validation loss on diabetes", '"method": "mn"'):
        assert part in page, part


def test_killed_train_stage_goes_on_from_its_checkpoint_to_the_same_weights(tmp_path: Path) -> None:
    settings = {"epochs": 40, "jobs": 1, "checkpoint_seconds": 0}
    clone = make_clone(tmp_path / "killed", datasets=["spiral"], methods=["mn"])
    set_params(clone.root, train=settings)
    clone.run("dvc", "repro", "preprocess@spiral")

    process = subprocess.Popen(
        ["dvc", "repro", "train@spiral"],
        cwd=clone.root,
        env=clone.environment,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    for line in process.stdout:
        if "epoch 8/40" in line:
            os.killpg(process.pid, signal.SIGKILL)
            break
    process.communicate()
    assert process.returncode == -signal.SIGKILL

    resumed = clone.run("dvc", "repro", "train@spiral")
    assert "goes on after epoch" in resumed
    weights = load_file(clone.root / "results/spiral/train/mn-seed0" / WEIGHTS)

    (clone.root / ".mn").rename(clone.root / ".mn-killed")
    undisturbed = clone.run("pipeline", "train", "spiral")
    assert "goes on after epoch" not in undisturbed
    expected = load_file(clone.root / "results/spiral/train/mn-seed0" / WEIGHTS)
    assert [name for name in expected if not torch.equal(weights[name], expected[name])] == []
