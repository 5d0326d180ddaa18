"""Checkpoints survive being cut short."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from mn.engine.checkpoint import Checkpoints

CPU = torch.device("cpu")


def test_nothing_saved_nothing_loaded(tmp_path: Path) -> None:
    assert Checkpoints(tmp_path).load(CPU) is None


def test_newest_is_loaded(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path)
    for epoch in range(3):
        checkpoints.save({"epoch": epoch})
    assert checkpoints.load(CPU) == {"epoch": 2}


@pytest.mark.parametrize("kept", [0, 1, 100, -1])
def test_truncated_newest_falls_back_to_the_one_before(tmp_path: Path, kept: int) -> None:
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save({"epoch": 1})
    checkpoints.save({"epoch": 2, "weights": torch.zeros(64)})
    newest = tmp_path / "checkpoint.pt"
    newest.write_bytes(newest.read_bytes()[:kept])
    assert checkpoints.load(CPU) == {"epoch": 1}


def test_failed_save_keeps_the_last_good_one(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save({"epoch": 1})
    with pytest.raises(AttributeError):
        checkpoints.save({"epoch": lambda: 2})
    assert checkpoints.load(CPU) == {"epoch": 1}
    assert {path.name for path in tmp_path.iterdir()} == {"checkpoint.pt"}
