"""Gradient boosting: chosen on validation data, grown again from the choice, stopped without a trace."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from mn.baselines.hgb import CHOICE, choose, predict
from mn.data.split import Part, SplitData, Standardisation
from mn.engine.config import BoostingSettings, RunConfig
from mn.engine.interrupt import Interrupted, StopRequest

X = torch.linspace(0, 1, 120)[:, None]
BUMP = ((X > 1 / 3) & (X < 2 / 3)).float()
SLOPE = 3 * X


def parts(train: Part, validation: Part, test: Part) -> SplitData:
    return SplitData(
        task="regression",
        kind="table",
        num_classes=0,
        num_targets=train.y.shape[1],
        standardisation=Standardisation(),
        train=train,
        validation=validation,
        test=test,
    )


def make(*targets: torch.Tensor, factors: tuple[float, ...] = (1.0,)) -> SplitData:
    """120 rows on a line. The validation part's targets are those of the training part times factors."""
    y = torch.cat(targets, dim=1)
    return parts(Part(X, y), Part(X[::3], y[::3] * torch.tensor(factors)), Part(X[1::4], y[1::4]))


def config(
    *, rates: tuple[float, ...] = (0.3,), leaves: tuple[int, ...] = (3,), trees: int = 30
) -> RunConfig:
    boosting = BoostingSettings(rates=list(rates), leaves=list(leaves), trees=trees)
    return RunConfig(dataset="made", split="main", method="hgb", seed=0, boosting=boosting)


def chosen(settings: RunConfig, data: SplitData, folder: Path) -> dict[str, Any]:
    """Choose in a folder; gives what is written there."""
    choose(settings, data, folder, StopRequest(folder / "stop"))
    choice: dict[str, Any] = json.loads((folder / CHOICE).read_text(encoding="utf-8"))
    return choice


def test_leaves_with_the_lowest_validation_loss_are_chosen(tmp_path: Path) -> None:
    """A product of signs has no gain in a single split: trees of two leaves learn next to nothing."""
    generator = torch.Generator().manual_seed(0)
    made = []
    for count in (200, 60, 60):
        x = torch.rand(count, 2, generator=generator) - 0.5
        made.append(Part(x, x.prod(1, keepdim=True).sign()))
    data = parts(*made)
    choice = chosen(config(leaves=(2, 8)), data, tmp_path)
    loss = {row["leaves"]: row["val_loss"] for row in choice["candidates"]}
    assert loss[8] < 0.5 * loss[2]
    assert choice["leaves"] == 8


def test_what_only_fits_the_training_part_is_not_chosen(tmp_path: Path) -> None:
    """Validation targets are 0 throughout: of two rates the smaller is less wrong, and one tree is enough."""
    data = make(BUMP, factors=(0.0,))
    choice = chosen(config(rates=(0.9, 0.01)), data, tmp_path)
    assert (choice["rate"], choice["trees"]) == (0.01, [1])


def test_every_combination_is_written_down(tmp_path: Path) -> None:
    choice = chosen(config(rates=(0.1, 0.3), leaves=(2, 3, 4), trees=5), make(BUMP), tmp_path)
    tried = [(row["rate"], row["leaves"]) for row in choice["candidates"]]
    assert tried == [(rate, leaves) for rate in (0.1, 0.3) for leaves in (2, 3, 4)]


def test_the_loss_written_down_is_that_of_the_predictions(tmp_path: Path) -> None:
    """The trees grown again are those that were chosen."""
    data = make(BUMP, SLOPE, factors=(0.7,))
    choice = chosen(config(trees=40), data, tmp_path)
    error = predict(config(), tmp_path, data, data.validation) - data.validation.y.numpy()
    assert choice["candidates"][0]["val_loss"] == pytest.approx(np.mean(error**2), rel=1e-6)


def test_two_targets_have_a_model_each(tmp_path: Path) -> None:
    """The second target is the first, but 0 on validation rows: every tree more than one makes it worse."""
    first, second = chosen(config(), make(BUMP, BUMP, factors=(1.0, 0.0)), tmp_path)["trees"]
    assert first > second == 1


def test_each_column_is_the_prediction_of_its_target(tmp_path: Path) -> None:
    data = make(BUMP, SLOPE)
    chosen(config(trees=60), data, tmp_path)
    predicted = predict(config(), tmp_path, data, data.test)
    assert predicted.shape == (len(data.test), 2)
    assert predicted == pytest.approx(data.test.y.numpy(), abs=0.3)


def test_predictions_are_the_same_every_time(tmp_path: Path) -> None:
    data = make(BUMP)
    chosen(config(), data, tmp_path)
    first, second = (predict(config(), tmp_path, data, data.test) for _ in range(2))
    assert first.shape == (len(data.test), 1)
    assert np.array_equal(first, second)


def test_a_stop_leaves_nothing_behind(tmp_path: Path) -> None:
    request = StopRequest(tmp_path / "stop")
    request.file.touch()
    output = tmp_path / "output"
    output.mkdir()
    with pytest.raises(Interrupted, match="hgb-seed0 was stopped"):
        choose(config(), make(BUMP), output, request)
    assert list(output.iterdir()) == []
