"""The curves of a train stage under real DVC: drawn by ``dvc plots``, and no cause to run anything."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.tiny.project import Clone, make_clone

TARGET = "train@spiral"
CURVE = "live/spiral/plots/custom/val_loss.json"
FIGURES = {"train_loss", "val_loss", "val_accuracy", "alpha", "lr"}
RUNS = ("vanilla-seed0", "mn-seed0")


def test_train_stage_leaves_curves_for_dvc_plots(tmp_path: Path) -> None:
    """One walk, as a training takes half a minute: a fresh clone, a repro, an experiment."""
    clone = make_clone(tmp_path / "a clone", datasets=["spiral"])
    assert drawn(clone, "show") == {}, "and no complaint that there is nothing"

    clone.run("dvc", "repro", TARGET)
    clone.commit("Train")
    plots = drawn(clone, "show")
    assert {Path(name).stem for name in plots} >= FIGURES
    assert points(plots) == [(run, epoch) for run in RUNS for epoch in (1, 2, 3)]
    encoding = plots[CURVE]["content"]["encoding"]
    fields = {axis: encoding[axis]["field"] for axis in ("x", "y", "detail")}
    assert fields == {"x": "epoch", "y": "val_loss", "detail": "run"}

    assert clone.run("dvc", "status", TARGET).strip() == "Data and pipelines are up to date."
    assert clone.run("git", "status", "--porcelain") == ""
    assert "Running stage" not in clone.run("dvc", "repro", TARGET)

    output = clone.run("dvc", "exp", "run", "--name", "wider", "-S", "model.S=9", TARGET)
    assert "vanilla-seed0: from the store" in output
    assert points(drawn(clone, "diff", "HEAD")) == [(run, epoch) for run in RUNS for epoch in (1, 2, 3)]
    assert clone.run("dvc", "exp", "list", "--name-only").split() == ["wider"]
    assert clone.run("git", "ls-files", "live").split() == ["live/.gitignore"]


def drawn(clone: Clone, *command: str) -> dict[str, Any]:
    """The plots that DVC makes of the live curves, by name; none of them may have failed."""
    shown = json.loads(clone.run("dvc", "plots", *command, "--json"))
    assert [error for error in shown.get("errors", []) if error["name"].startswith("live")] == []
    return {name: plots[0] for name, plots in shown["data"].items() if name.startswith("live") and plots}


def points(plots: dict[str, Any]) -> list[tuple[str, int]]:
    """The runs and epochs of the validation loss."""
    return [(row["run"], row["epoch"]) for row in plots[CURVE]["content"]["data"]["values"]]
