"""Training: resumed runs end where undisturbed ones do, schedules and selection do what they say."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from mn.data.split import Part, SplitData, Standardisation
from mn.engine.config import DictionarySettings, ExecutionSettings, NetworkSettings, RunConfig, TrainSettings
from mn.engine.distributed import Ranks
from mn.engine.event import Event
from mn.engine.fit import HISTORY, SNAPSHOTS, WEIGHTS, fit
from mn.engine.interrupt import Interrupted, StopRequest
from mn.engine.modelfile import load_model
from mn.errors import MNError

EXECUTION = ExecutionSettings(
    device="cpu", scheduler="local", jobs=1, threads=1, workers=0, channels_last="auto", compile=False,
    checkpoint_seconds=0.0,
)  # fmt: skip


def make_config(method: str = "mn", *, regression: bool = False, **training: Any) -> RunConfig:
    settings = {
        "optimizer": "adamw", "lr": 0.01, "momentum": 0.0, "weight_decay": 0.1, "batch_size": 8, "epochs": 4,
        "lr_drops": [2], "lr_factor": 0.1, "alpha_lr": 1.0, "dictionary_lr": 1.0, "clip": 10.0, "patience": 0,
        "augment": "none", "batchnorm": "running", "keep": "last", "snapshots": [], "precision": "fp32",
    }  # fmt: skip
    head = {"head": "mlp", "hidden": [5]} if regression else {"head": "cosine", "hidden": []}
    dictionary = DictionarySettings(
        S=6, T=0.2, similarity="cosine", steps=1, alpha="scalar", alpha_init=0.05, alpha_learned=True,
        dropout=0.5, dropout_per="batch", key_init="gaussian", key_scale=1.0, values="learned",
    )  # fmt: skip
    return RunConfig(
        dataset="made",
        split="main",
        method=method,  # type: ignore[arg-type]
        seed=0,
        network=NetworkSettings(
            backbone="identity",
            last_relu=False,
            activation="relu",
            **head,  # type: ignore[arg-type]
        ),
        dictionary=dictionary if method == "mn" else None,
        training=TrainSettings(**{**settings, **training}),
    )


def make_data(*, regression: bool = False) -> SplitData:
    generator = torch.Generator().manual_seed(0)
    parts = []
    for count in (30, 12, 12):
        x = torch.randn(count, 3, generator=generator)
        y = x.sum(1, keepdim=True) if regression else (x[:, 0] > 0).long()
        parts.append(Part(x, y))
    train, validation, test = parts
    return SplitData(
        task="regression" if regression else "classification",
        kind="table",
        num_classes=0 if regression else 2,
        num_targets=1 if regression else 0,
        standardisation=Standardisation(),
        train=train,
        validation=validation,
        test=test,
    )


def run(
    folder: Path,
    config: RunConfig,
    data: SplitData,
    progress: Callable[[Event], None] = lambda _: None,
    execution: ExecutionSettings = EXECUTION,
) -> Path:
    output = folder / "output"
    output.mkdir(parents=True, exist_ok=True)
    fit(config, data, folder, output, execution=execution, progress=progress,
        stop=StopRequest(folder / "stop"), ranks=Ranks())  # fmt: skip
    return output


def history(output: Path) -> list[dict[str, float]]:
    """The rows of a run's history, but for its speed, which no two runs share."""
    found: list[dict[str, float]] = json.loads((output / HISTORY).read_text())
    assert all(row.pop("rows_per_second") > 0 for row in found)
    return found


def assert_equal_weights(a: Path, b: Path) -> None:
    first, second = load_file(a / WEIGHTS), load_file(b / WEIGHTS)
    assert first.keys() == second.keys()
    assert [name for name in first if not torch.equal(first[name], second[name])] == []


@pytest.mark.parametrize("regression", [False, True], ids=["classification", "regression"])
@pytest.mark.parametrize("method", ["vanilla", "mn"])
def test_training_lowers_the_loss(tmp_path: Path, method: str, regression: bool) -> None:
    config = make_config(method, regression=regression, epochs=15, lr_drops=[])
    rows = history(run(tmp_path, config, make_data(regression=regression)))
    assert rows[-1]["train_loss"] < 0.7 * rows[0]["train_loss"]


def test_same_seed_same_weights_other_seed_other_weights(tmp_path: Path) -> None:
    config, data = make_config(), make_data()
    first, second = (run(tmp_path / name, config, data) for name in "ab")
    assert_equal_weights(first, second)
    other = run(tmp_path / "c", config.model_copy(update={"seed": 1}), data)
    keys = "model.dictionary.keys"
    assert not torch.equal(load_file(first / WEIGHTS)[keys], load_file(other / WEIGHTS)[keys])


@pytest.mark.parametrize("stopped_after", [1, 3])
def test_stopped_run_goes_on_to_the_same_weights(tmp_path: Path, stopped_after: int) -> None:
    """A stop in the middle of an epoch: order, dropout, optimiser and history all go on from there."""
    config, data = make_config(keep="best", snapshots=[0, 5, 14]), make_data()
    undisturbed = run(tmp_path / "a", config, data)

    folder = tmp_path / "b"
    folder.mkdir()

    def stop(event: Event) -> None:
        if event.epoch == stopped_after:
            (folder / "stop").touch()

    with pytest.raises(Interrupted):
        run(folder, config, data, stop)
    (folder / "stop").unlink()
    events: list[Event] = []
    resumed = run(folder, config, data, events.append)
    assert (events[0].what, events[0].epoch, len(events[0].history)) == (
        "start",
        stopped_after,
        stopped_after,
    )
    assert_equal_weights(undisturbed, resumed)
    assert history(undisturbed) == history(resumed)
    moments = [load_file(output / SNAPSHOTS) for output in (undisturbed, resumed)]
    assert all(torch.equal(moments[0][name], moments[1][name]) for name in moments[0])


def test_random_numbers_of_the_caller_are_left_alone(tmp_path: Path) -> None:
    torch.manual_seed(7)
    expected = torch.rand(3)
    torch.manual_seed(7)
    run(tmp_path, make_config(), make_data())
    assert torch.equal(torch.rand(3), expected)


def test_lr_falls_to_a_tenth_after_each_drop(tmp_path: Path) -> None:
    rows = history(run(tmp_path, make_config(lr_drops=[1, 3]), make_data()))
    assert [row["lr"] for row in rows] == pytest.approx([0.01, 0.001, 0.001, 0.0001])


def test_patience_ends_a_run_that_no_longer_improves(tmp_path: Path) -> None:
    config = make_config("vanilla", regression=True, epochs=50, patience=2, lr=1e-12, lr_drops=[])
    rows = history(run(tmp_path, config, make_data(regression=True)))
    best = min(range(len(rows)), key=lambda i: rows[i]["val_loss"])
    assert len(rows) == best + 1 + 2


def test_best_weights_are_those_of_the_best_validation_score(tmp_path: Path) -> None:
    config = make_config("vanilla", regression=True, epochs=6, lr=0.5, keep="best", lr_drops=[])
    data = make_data(regression=True)
    output = run(tmp_path, config, data)
    with torch.inference_mode():
        kept = torch.nn.functional.mse_loss(
            load_model(output / WEIGHTS).model(data.validation.x), data.validation.y
        )
    assert kept.item() == pytest.approx(min(row["val_loss"] for row in history(output)), rel=1e-5)


def test_snapshots_are_the_weights_at_those_iterations(tmp_path: Path) -> None:
    output = run(tmp_path, make_config(snapshots=[0, 16]), make_data())
    kept = load_file(output / SNAPSHOTS)
    assert {name.partition("/")[0] for name in kept} == {"0", "16"}
    final = load_file(output / WEIGHTS)  # 4 epochs of 4 steps: iteration 16 is the last
    assert torch.equal(kept["16/dictionary.keys"], final["model.dictionary.keys"])
    assert not torch.equal(kept["0/dictionary.keys"], kept["16/dictionary.keys"])


def test_loss_that_is_no_number_stops_the_run_and_says_where(tmp_path: Path) -> None:
    data = make_data(regression=True)
    data.train.y[0] = float("nan")
    with pytest.raises(
        MNError, match=r"became nan at iteration \d+ .* lr 0\.01; the last finite values: loss \d"
    ):
        run(tmp_path, make_config("vanilla", regression=True), data)


def test_decay_spares_dictionary_alpha_and_linear_heads() -> None:
    from mn.engine.build import ModelShape, build_model
    from mn.engine.optimizers import build_optimizer

    config = make_config()
    assert config.training is not None
    model = build_model(config, ModelShape((3,), num_classes=2))
    groups = build_optimizer(model, config.training).param_groups
    assert {group["weight_decay"] for group in groups} == {0.0}
    mlp = build_model(make_config(regression=True), ModelShape((3,), num_targets=1))
    decayed, *spared = build_optimizer(mlp, config.training).param_groups
    assert [group["weight_decay"] for group in (decayed, *spared)] == [0.1, 0.0, 0.0]
    assert {id(p) for p in decayed["params"]} == {id(p) for p in mlp.head.parameters()}
