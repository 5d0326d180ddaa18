"""TabM: the best epoch stays, training ends in time, and a seed is all that chance depends on."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from mn.baselines.tabm import choose, predict
from mn.data.split import Part, SplitData, Standardisation
from mn.engine.config import RunConfig, TabMSettings
from mn.engine.fit import HISTORY, WEIGHTS
from mn.engine.interrupt import Interrupted, StopRequest
from mn.errors import MNError


def make(*, noise: bool = False) -> SplitData:
    """40 rows of three numbers, to find their sum and their product; with noise there is nothing to find."""
    generator = torch.Generator().manual_seed(0)
    parts = []
    for count in (40, 15, 12):
        x = torch.randn(count, 3, generator=generator)
        y = torch.stack([x.sum(1), x.prod(1)], dim=1)
        parts.append(Part(x, torch.randn(count, 2, generator=generator) if noise else y))
    train, validation, test = parts
    return SplitData(
        task="regression",
        kind="table",
        num_classes=0,
        num_targets=2,
        standardisation=Standardisation(),
        train=train,
        validation=validation,
        test=test,
    )


def config(*, seed: int = 0, max_epochs: int = 4, epochs_without: int = 16) -> RunConfig:
    tabm = TabMSettings(members=4, blocks=1, units=32, max_epochs=max_epochs, epochs_without=epochs_without)
    return RunConfig(dataset="made", split="main", method="tabm", seed=seed, tabm=tabm)


def trained(settings: RunConfig, data: SplitData, folder: Path) -> list[float]:
    """Train in a folder; gives the validation loss after each epoch."""
    folder.mkdir(exist_ok=True)
    choose(settings, data, folder, StopRequest(folder / "stop"))
    history = json.loads((folder / HISTORY).read_text(encoding="utf-8"))
    assert [row["epoch"] for row in history] == list(range(1, len(history) + 1))
    return [row["val_loss"] for row in history]


@pytest.fixture
def _tabm() -> None:
    pytest.importorskip("tabm")


needs_tabm = pytest.mark.usefixtures("_tabm")


@needs_tabm
def test_weights_of_the_best_epoch_stay(tmp_path: Path) -> None:
    """On noise a network soon learns by heart: the last epoch is not the best."""
    data = make(noise=True)
    losses = trained(config(max_epochs=60, epochs_without=8), data, tmp_path)
    assert min(losses) < losses[-1], "or the last weights would do"
    error = predict(config(), tmp_path, data, data.validation) - data.validation.y.numpy()
    assert np.mean(error**2) == pytest.approx(min(losses), rel=1e-5)


@needs_tabm
@pytest.mark.parametrize("epochs_without", [1, 3])
def test_it_ends_so_many_epochs_after_the_best(tmp_path: Path, epochs_without: int) -> None:
    losses = trained(config(max_epochs=400, epochs_without=epochs_without), make(noise=True), tmp_path)
    assert len(losses) < 400
    assert len(losses) - (losses.index(min(losses)) + 1) == epochs_without


@needs_tabm
def test_it_ends_after_the_last_epoch(tmp_path: Path) -> None:
    losses = trained(config(max_epochs=4), make(), tmp_path)
    assert len(losses) == 4
    assert losses[-1] < losses[0]


@needs_tabm
def test_the_seed_decides_the_weights(tmp_path: Path) -> None:
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        torch.manual_seed(ord(name))
        trained(config(seed=seed), make(), tmp_path / name)
    a, b, c = (load_file(tmp_path / name / WEIGHTS) for name in "abc")
    assert [name for name in a if not torch.equal(a[name], b[name])] == []
    assert [name for name in a if not torch.equal(a[name], c[name])] != []


@needs_tabm
def test_training_leaves_the_global_generator_alone(tmp_path: Path) -> None:
    before = torch.get_rng_state()
    trained(config(), make(), tmp_path)
    assert torch.equal(torch.get_rng_state(), before)


@needs_tabm
def test_predicting_leaves_the_global_generator_alone(tmp_path: Path) -> None:
    data = make()
    trained(config(), data, tmp_path)
    before = torch.get_rng_state()
    predict(config(), tmp_path, data, data.test)
    assert torch.equal(torch.get_rng_state(), before)


@needs_tabm
def test_predictions_have_a_row_each_and_a_column_per_target(tmp_path: Path) -> None:
    data = make()
    trained(config(), data, tmp_path)
    first, second = (predict(config(), tmp_path, data, data.test) for _ in range(2))
    assert first.shape == (12, 2)
    assert np.array_equal(first, second)


@needs_tabm
def test_a_stop_leaves_nothing_behind(tmp_path: Path) -> None:
    request = StopRequest(tmp_path / "stop")
    request.file.touch()
    output = tmp_path / "output"
    output.mkdir()
    with pytest.raises(Interrupted, match="tabm-seed0 was stopped"):
        choose(config(), make(), output, request)
    assert list(output.iterdir()) == []


def test_without_the_package_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tabm", None)
    with pytest.raises(MNError) as caught:
        choose(config(), make(), tmp_path, StopRequest(tmp_path / "stop"))
    assert "pip install 'meta-neighborhoods[tabm]'" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []
