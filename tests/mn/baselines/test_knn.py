"""kNN: chosen on validation data, and what it is known to answer."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from mn.baselines.knn import CHOICE, choose, predict
from mn.data.split import Part, SplitData, Standardisation
from mn.engine.config import NeighbourSettings, RunConfig
from mn.engine.interrupt import StopRequest


def make(
    x: list[float], y: list[float] | list[int], val: list[float], val_y: list[float] | list[int]
) -> SplitData:
    regression = isinstance(y[0], float)

    def part(inputs: list[float], targets: list[float] | list[int]) -> Part:
        target = torch.tensor(targets)
        return Part(torch.tensor(inputs)[:, None], target[:, None] if regression else target)

    return SplitData(
        task="regression" if regression else "classification",
        kind="table",
        num_classes=0 if regression else 2,
        num_targets=1 if regression else 0,
        standardisation=Standardisation(),
        train=part(x, y),
        validation=part(val, val_y),
        test=part(val, val_y),
    )


def config(*k: int) -> RunConfig:
    return RunConfig(
        dataset="made", split="main", method="knn", seed=0, neighbours=NeighbourSettings(k=list(k))
    )


def test_k_with_the_lowest_validation_error_is_chosen(tmp_path: Path) -> None:
    """Targets alternate around 0.5: one neighbour is always wrong by 0.5, two hit the mean."""
    data = make([0.0, 1.0, 2.0, 3.0], [0.0, 1.0, 0.0, 1.0], [0.4, 1.4, 2.4], [0.5, 0.5, 0.5])
    choose(config(1, 2), data, tmp_path, StopRequest(tmp_path / "stop"))
    choice = json.loads((tmp_path / CHOICE).read_text())
    assert (choice["k"], choice["weighting"]) == (2, "uniform")
    assert len(choice["candidates"]) == 4
    assert predict(config(1), tmp_path, data, data.test) == pytest.approx(0.5)


def test_labels_of_the_nearest_row(tmp_path: Path) -> None:
    data = make([0.0, 1.0], [0, 1], [0.1, 0.9, 0.2], [0, 1, 0])
    choose(config(1), data, tmp_path, StopRequest(tmp_path / "stop"))
    assert np.array_equal(predict(config(1), tmp_path, data, data.test), [0, 1, 0])


def test_k_larger_than_the_training_part_is_passed_over(tmp_path: Path) -> None:
    data = make([0.0, 1.0], [0, 1], [0.1], [0])
    choose(config(1, 99), data, tmp_path, StopRequest(tmp_path / "stop"))
    assert {row["k"] for row in json.loads((tmp_path / CHOICE).read_text())["candidates"]} == {1}
