"""Training: resumed runs end where undisturbed ones do, schedules and selection do what they say."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from mn.data.feed import epoch_order
from mn.engine.checkpoint import Checkpoints
from mn.engine.config import ExecutionSettings
from mn.engine.event import Event
from mn.engine.fit import SNAPSHOTS, WEIGHTS
from mn.engine.interrupt import Interrupted
from mn.engine.modelfile import load_model
from mn.errors import MNError
from tests.mn.engine.make import (
    EXECUTION,
    assert_equal_weights,
    history,
    make_config,
    make_data,
    make_images,
    run,
)


@pytest.mark.parametrize("regression", [False, True], ids=["classification", "regression"])
@pytest.mark.parametrize("method", ["vanilla", "mn"])
def test_training_lowers_the_loss(tmp_path: Path, method: str, regression: bool) -> None:
    config = make_config(method, regression=regression, epochs=15, lr_drops=[])
    rows = history(run(tmp_path, config, make_data(regression=regression)))
    assert rows[-1]["train_loss"] < 0.7 * rows[0]["train_loss"]


def test_same_seed_same_weights_other_seed_other_weights(tmp_path: Path) -> None:
    data = make_data()
    first, again, *others = (
        run(tmp_path / str(place), make_config(seed=seed), data) for place, seed in enumerate((0, 0, 1, 2))
    )
    assert_equal_weights(first, again)
    keys = [load_file(output / WEIGHTS)["model.dictionary.keys"] for output in (first, *others)]
    assert not any(torch.equal(keys[i], keys[j]) for i, j in ((0, 1), (0, 2), (1, 2)))


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


@pytest.mark.parametrize("factor", [0.1, 0.5])
def test_lr_falls_by_the_factor_after_each_drop(tmp_path: Path, factor: float) -> None:
    rows = history(run(tmp_path, make_config(lr_drops=[1, 3], lr_factor=factor), make_data()))
    assert [row["lr"] for row in rows] == pytest.approx([0.01 * factor**drops for drops in (0, 1, 1, 2)])


@pytest.mark.parametrize(
    ("setting", "own", "other"),
    [("alpha_lr", "alpha.", "dictionary.keys"), ("dictionary_lr", "dictionary.keys", "alpha.")],
)
def test_alpha_and_dictionary_have_learning_rates_of_their_own(
    tmp_path: Path, setting: str, own: str, other: str
) -> None:
    """At a millionth of the rate a part stays where it started, and only that part."""
    config = make_config(epochs=1, snapshots=[0, 4], **{setting: 1e-6})
    kept = load_file(run(tmp_path, config, make_data()) / SNAPSHOTS)
    moved = {
        name.removeprefix("0/"): (kept[name.replace("0/", "4/", 1)] - kept[name]).abs().max().item()
        for name in kept
        if name.startswith("0/")
    }
    assert max(far for name, far in moved.items() if name.startswith(own)) < 1e-6
    assert max(far for name, far in moved.items() if name.startswith(other)) > 1e-3


def test_history_of_mn_has_speed_use_of_the_dictionary_and_accuracy_before_adaptation(tmp_path: Path) -> None:
    rows: list[dict[str, float]] = []
    run(tmp_path, make_config(epochs=1), make_data(), lambda event: rows.append(event.figures))
    row = rows[-1]
    assert row["rows_per_second"] > 0
    assert 0 < row["share_in_use"] <= 1
    assert 0 <= row["val_before_accuracy"] <= 100


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


def test_divergence_tells_of_the_epochs_before(tmp_path: Path) -> None:
    """A target turns into no number after the first epoch: what was good until then is named."""
    data = make_data(regression=True)
    last = epoch_order(30, seed=0, epoch=1)[-1]  # 4 steps an epoch: it comes at iteration 7

    def spoil(event: Event) -> None:
        if event.what == "epoch":
            data.train.y[last] = float("nan")

    with pytest.raises(
        MNError,
        match=r"^made vanilla-seed0: the loss became nan at iteration 7 \(epoch 2\) with lr 0\.01; the last "
        r"finite values: loss \d\S*, after epoch 1: val_loss \d\S*  train_loss \d",
    ):
        run(tmp_path, make_config("vanilla", regression=True), data, spoil)


def test_divergence_keeps_the_last_good_checkpoint(tmp_path: Path) -> None:
    """With the cause mended the run goes on from there, to the weights that it would have had."""
    config, data = make_config("vanilla", regression=True), make_data(regression=True)
    undisturbed = run(tmp_path / "a", config, data)
    last = epoch_order(30, seed=0, epoch=0)[-1]  # in the fourth and last step of the epoch
    right = data.train.y[last].clone()
    data.train.y[last] = float("nan")
    with pytest.raises(MNError, match="became nan at iteration 3"):
        run(tmp_path / "b", config, data)
    saved = Checkpoints(tmp_path / "b").load(torch.device("cpu"))
    assert saved is not None
    assert saved["state"]["iteration"] == 3
    data.train.y[last] = right
    assert_equal_weights(undisturbed, run(tmp_path / "b", config, data))


def test_out_of_memory_names_the_settings_to_lower(tmp_path: Path) -> None:
    """A dictionary larger than any address space, so that no machine even tries."""
    with pytest.raises(
        MNError,
        match=r"^made mn-seed0: out of memory \(.*\); "
        r"lower train.batch_size \(now 8\) or model.S \(now 10{14}\)",
    ):
        run(tmp_path, make_config(S=10**14), make_data())


@pytest.mark.parametrize("method", ["vanilla", "mn_ifilm", "maxl"])
@pytest.mark.parametrize("change", [{"channels_last": False}, {"workers": 2}], ids=["layout", "workers"])
def test_how_a_run_is_computed_changes_nothing_but_rounding(
    tmp_path: Path, method: str, change: dict[str, int]
) -> None:
    config, data = make_config(method, backbone="convnet4", epochs=1, lr=1e-3, augment="light"), make_images()
    plain = history(run(tmp_path / "plain", config, data))
    changed = history(run(tmp_path / "changed", config, data, execution=EXECUTION.model_copy(update=change)))
    assert changed[0] == pytest.approx(plain[0], rel=1e-4)


def test_how_a_run_is_computed_is_no_part_of_its_identity() -> None:
    identity = make_config().identity()
    named = set(identity).union(*(group for group in identity.values() if isinstance(group, dict)))
    assert named.isdisjoint(ExecutionSettings.model_fields)
    assert {"device", "workers", "channels_last", "compile", "jobs"} <= set(ExecutionSettings.model_fields)


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
    assert [group["weight_decay"] for group in (decayed, *spared)] == [0.1, 0.0, 0.0, 0.0]
    assert {id(p) for p in decayed["params"]} == {id(p) for p in mlp.head.parameters()}
