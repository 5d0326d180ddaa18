"""The search on tiny data: what is chosen, what takes it over, and what is written about it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from statistics import fmean
from typing import Any

import h5py
import pytest
from ruamel.yaml import YAML

from mn.engine.config import RunConfig, TrainSettings
from mn.engine.fit import HISTORY
from mn.engine.runs import key_of
from mn.engine.store import RunStore, StoredRun
from mn.errors import MNError
from mn.files import sha256
from pipeline.params import plan
from pipeline.paths import processed_file, store_folder, train_folder
from pipeline.search import SEARCH, named_runs
from pipeline.show import prune_runs
from pipeline.train import train, trained_runs
from tests.conftest import set_params

RATES = [1.0e-6, 0.03, 1.0e-5]  # the one in the middle learns something in three epochs
DECAYS = [0.0, 0.5]
FOLDS = [f"fold{fold}" for fold in range(5)]


def set_search(root: Path, *rounds: dict[str, Any]) -> None:
    """Give diabetes these rounds in the project's recipes.yaml."""
    yaml = YAML()
    path = root / "recipes.yaml"
    content = yaml.load(path.read_text(encoding="utf-8"))
    content["diabetes"]["search"] = list(rounds)
    with path.open("w", encoding="utf-8") as file:
        yaml.dump(content, file)


@pytest.fixture
def ready(prepared: Callable[[str], Path]) -> Path:
    """A project with diabetes prepared, and its plain network the only method."""
    root = prepared("diabetes")
    set_params(root, datasets=["diabetes"], methods=["vanilla"], train={"checkpoint_seconds": 1000.0})
    return root


def searched(root: Path) -> list[dict[str, Any]]:
    """Train; gives what search.json says."""
    table: list[dict[str, Any]] = json.loads((train(root, "diabetes") / SEARCH).read_text(encoding="utf-8"))
    return table


def chosen(stage: dict[str, Any]) -> dict[str, Any]:
    """The settings of a round's candidate that is marked."""
    (found,) = (row["settings"] for row in stage["candidates"] if row["chosen"])
    return dict(found)


def stored(root: Path, key: str) -> StoredRun:
    run = RunStore(store_folder(root)).finished(key)
    assert run is not None
    return run


def losses(root: Path, key: str) -> list[float]:
    """A stored run's validation loss after each epoch."""
    rows = json.loads((stored(root, key).folder / HISTORY).read_text(encoding="utf-8"))
    return [row["val_loss"] for row in rows]


def training(config: RunConfig) -> TrainSettings:
    assert config.training is not None
    return config.training


def rates(root: Path) -> set[tuple[str, float]]:
    """Method and learning rate of every run of the table."""
    return {(run.config.method, training(run.config).lr) for run in trained_runs(root, "diabetes")}


@pytest.mark.parametrize("keep", ["best", "last"])
def test_least_validation_loss_of_the_weights_kept_is_chosen(ready: Path, keep: str) -> None:
    """At a large rate the last epoch is not the best: what counts depends on the weights that stay."""
    set_params(ready, train={"keep": keep, "epochs": 6})
    set_search(ready, {"method": "vanilla", "grid": [{"lr": [1.0e-6, 0.1, 0.3]}]})
    (stage,) = searched(ready)
    histories = [losses(ready, *row["keys"]) for row in stage["candidates"]]
    assert min(histories[-1]) < histories[-1][-1], "or the two cases are one"
    kept = [min(history) if keep == "best" else history[-1] for history in histories]
    assert [row["val_loss"] for row in stage["candidates"]] == kept
    assert [row["chosen"] for row in stage["candidates"]] == [loss == min(kept) for loss in kept]
    assert chosen(stage) == {"lr": 0.1}


def test_what_is_found_is_used_by_every_run_of_the_table(ready: Path) -> None:
    set_params(ready, seeds=[0, 1])
    set_search(ready, {"method": "vanilla", "grid": [{"lr": RATES}]})
    searched(ready)
    assert len(trained_runs(ready, "diabetes")) == 10
    assert rates(ready) == {("vanilla", 0.03)}


@pytest.mark.parametrize(("also", "lr"), [([], 1.0e-3), (["mn"], 0.03)])
def test_methods_in_also_take_over_what_is_found(ready: Path, also: list[str], lr: float) -> None:
    set_params(ready, methods=["vanilla", "mn"])
    set_search(ready, {"method": "vanilla", "also": also, "grid": [{"lr": RATES}]})
    searched(ready)
    assert rates(ready) == {("vanilla", 0.03), ("mn", lr)}


def test_a_later_round_sees_what_an_earlier_one_found(ready: Path) -> None:
    set_search(
        ready,
        {"method": "vanilla", "grid": [{"lr": RATES}]},
        {"method": "vanilla", "grid": [{"weight_decay": DECAYS}]},
    )
    first, second = searched(ready)
    tried = [training(stored(ready, *row["keys"]).config) for row in second["candidates"]]
    assert [(one.lr, one.weight_decay) for one in tried] == [(0.03, decay) for decay in DECAYS]
    final = training(trained_runs(ready, "diabetes")[0].config)
    assert {"lr": final.lr, "weight_decay": final.weight_decay} == {**chosen(first), **chosen(second)}


def test_a_later_round_replaces_what_an_earlier_one_found(ready: Path) -> None:
    set_search(
        ready,
        {"method": "vanilla", "grid": [{"lr": RATES}]},
        {"method": "vanilla", "grid": [{"lr": [1.0e-7, 1.0e-4]}]},
    )
    _, second = searched(ready)
    assert rates(ready) == {("vanilla", chosen(second)["lr"])}


def test_a_rounds_own_settings_do_not_stay(ready: Path) -> None:
    set_search(ready, {"method": "vanilla", "train": {"batch_size": 50}, "grid": [{"lr": RATES}]})
    (stage,) = searched(ready)
    tried = {training(stored(ready, *row["keys"]).config).batch_size for row in stage["candidates"]}
    final = {training(run.config).batch_size for run in trained_runs(ready, "diabetes")}
    assert (tried, final) == ({50}, {32})


def test_without_apply_nothing_changes(ready: Path) -> None:
    train(ready, "diabetes")
    before = [run.key for run in trained_runs(ready, "diabetes")]
    set_search(
        ready,
        {"method": "vanilla", "apply": False, "grid": [{"lr": RATES}]},
        {"method": "vanilla", "apply": False, "grid": [{"weight_decay": DECAYS}]},
    )
    first, second = searched(ready)
    assert chosen(first) == {"lr": 0.03}
    assert {training(stored(ready, *row["keys"]).config).lr for row in second["candidates"]} == {1.0e-3}
    assert [run.key for run in trained_runs(ready, "diabetes")] == before


def test_all_splits_count_by_their_mean(ready: Path) -> None:
    set_search(ready, {"method": "vanilla", "splits": "all", "grid": [{"lr": RATES[:2]}]})
    (stage,) = searched(ready)
    assert stage["splits"] == FOLDS
    for row in stage["candidates"]:
        assert [stored(ready, key).config.split for key in row["keys"]] == FOLDS
        assert row["val_loss"] == pytest.approx(fmean(min(losses(ready, key)) for key in row["keys"]))
        seconds = (stored(ready, key).record["seconds"] for key in row["keys"])
        assert row["seconds"] == pytest.approx(sum(seconds))


def test_a_setting_of_params_is_not_searched(ready: Path) -> None:
    set_params(ready, train={"lr": 0.002})
    set_search(
        ready,
        {"method": "vanilla", "grid": [{"lr": RATES}]},
        {"method": "vanilla", "grid": [{"lr": RATES, "weight_decay": DECAYS}]},
    )
    (stage,) = searched(ready)  # nothing is left of the first round
    assert [row["settings"] for row in stage["candidates"]] == [{"weight_decay": decay} for decay in DECAYS]
    assert rates(ready) == {("vanilla", 0.002)}


@pytest.mark.parametrize(
    "off",
    [{"search": "none"}, {"train": {"lr": 1.0e-3}}, {"methods": ["knn"]}],
    ids=["search: none", "everything set in params.yaml", "no method that depends on it"],
)
def test_nothing_is_searched(ready: Path, off: dict[str, Any]) -> None:
    set_search(ready, {"method": "vanilla", "grid": [{"lr": RATES}]})
    assert len(plan(ready, "diabetes").search) == 1
    set_params(ready, **off)
    folder = train(ready, "diabetes")
    assert not (folder / SEARCH).exists()
    laid_out = {run.key for run in trained_runs(ready, "diabetes")}
    assert {run.key for run in RunStore(store_folder(ready)).entries()} == laid_out


def test_second_call_takes_the_search_from_the_store(ready: Path, capsys: pytest.CaptureFixture[str]) -> None:
    set_search(ready, {"method": "vanilla", "splits": "all", "grid": [{"lr": RATES[:2]}]})
    before = searched(ready)
    capsys.readouterr()
    assert searched(ready) == before
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 15, "two candidates on five folds, and five runs"
    assert [line for line in lines if "from the store" not in line] == []


def test_what_is_written_about_a_round(ready: Path) -> None:
    set_params(ready, seeds=[3, 0])
    grid = [{"lr": RATES[:2], "weight_decay": DECAYS}, {"lr": [0.01]}]
    set_search(ready, {"method": "vanilla", "also": ["mn"], "grid": grid})
    (stage,) = searched(ready)
    candidates = stage.pop("candidates")
    assert stage == {"method": "vanilla", "also": ["mn"], "splits": ["fold0"], "seed": 3, "applied": True}
    products = [{"lr": lr, "weight_decay": decay} for lr in RATES[:2] for decay in DECAYS]
    assert [row["settings"] for row in candidates] == [*products, {"lr": 0.01}]
    assert [row["chosen"] for row in candidates].count(True) == 1
    for row in candidates:
        run = stored(ready, *row["keys"])
        assert (run.config.split, run.config.seed) == ("fold0", 3)
        assert (row["epochs"], row["seconds"]) == (3, run.record["seconds"])
        assert set(row) == {"settings", "keys", "val_loss", "epochs", "seconds", "chosen"}


@pytest.mark.parametrize(
    ("grid", "told"),
    [
        pytest.param([{"Tx": [0.1]}], "no setting is called Tx", id="unknown setting"),
        pytest.param([{"T": [0.1, -1.0]}], "T = -1.0 is not allowed; needed:", id="value out of range"),
        pytest.param([{"lr": ["fast"]}], "lr = 'fast' is not allowed; needed:", id="value of the wrong type"),
        pytest.param([{"lr": 0.1}], "0.1 is not allowed; needed:", id="no list"),
        pytest.param([], "[] is not allowed; needed:", id="empty"),
        pytest.param([{"T": []}], "grid: T has no values to try", id="no values"),
    ],
)
def test_a_bad_grid_is_told_in_one_line(project: Path, grid: list[Any], told: str) -> None:
    set_search(project, {"method": "vanilla", "grid": grid})
    with pytest.raises(MNError) as caught:
        plan(project, "diabetes")
    message = str(caught.value)
    assert message.startswith("recipes.yaml: diabetes.search[0]")
    assert told in message
    assert "\n" not in message


@pytest.mark.parametrize("method", ["knn", "hgb", "tabm"])
@pytest.mark.parametrize("place", ["method", "also"])
def test_a_round_of_what_has_no_epochs_is_refused(project: Path, method: str, place: str) -> None:
    stage = {"method": method} if place == "method" else {"method": "vanilla", "also": [method]}
    set_search(project, {**stage, "grid": [{"lr": [0.1]}]})
    with pytest.raises(MNError, match=rf"recipes.yaml: diabetes.search\[0\]: {method} has no round"):
        plan(project, "diabetes")


def test_rounds_are_kept_whose_outcome_reaches_a_method_through_another(project: Path) -> None:
    set_params(project, datasets=["diabetes"], methods=["mn"])
    set_search(
        project,
        {"method": "vanilla", "grid": [{"lr": RATES}]},
        {"method": "vanilla", "also": ["mn"], "grid": [{"weight_decay": DECAYS}]},
        {"method": "vanilla", "grid": [{"batch_size": [16, 32]}]},
    )
    kept = [[*one.grid[0]] for one in plan(project, "diabetes").search]
    assert kept == [["lr"], ["weight_decay"]]


def test_rounds_that_change_nothing_are_kept_only_for_their_own_method(project: Path) -> None:
    set_params(project, datasets=["diabetes"], methods=["mn"])
    set_search(
        project,
        {"method": "vanilla", "apply": False, "grid": [{"lr": RATES}]},
        {"method": "vanilla", "also": ["mn"], "grid": [{"weight_decay": DECAYS}]},
        {"method": "vanilla", "also": ["mn"], "apply": False, "grid": [{"batch_size": [16, 32]}]},
        {"method": "mn", "apply": False, "grid": [{"T": [0.1, 0.2]}]},
    )
    assert [[*one.grid[0]] for one in plan(project, "diabetes").search] == [["weight_decay"], ["T"]]


def test_runs_of_the_search_are_named_and_not_pruned(ready: Path, capsys: pytest.CaptureFixture[str]) -> None:
    set_search(
        ready,
        {"method": "vanilla", "grid": [{"lr": RATES}]},
        {"method": "vanilla", "grid": [{"weight_decay": DECAYS}]},
    )
    train(ready, "diabetes")
    store = RunStore(store_folder(ready))
    digest = sha256(ready / processed_file("diabetes"))
    named = {key_of(config, digest) for config in named_runs(plan(ready, "diabetes"), digest, store)}
    assert named == {run.key for run in store.entries()}
    shutil.rmtree(ready / train_folder("diabetes"))
    capsys.readouterr()
    prune_runs(ready)
    assert capsys.readouterr().out == f"removed 0 runs (0 B), kept {len(named)}\n"


def test_as_long_as_a_round_is_unfinished_no_later_runs_are_named(ready: Path) -> None:
    set_search(
        ready,
        {"method": "vanilla", "grid": [{"lr": RATES}]},
        {"method": "vanilla", "grid": [{"weight_decay": DECAYS}]},
    )
    digest = sha256(ready / processed_file("diabetes"))
    named = named_runs(plan(ready, "diabetes"), digest, RunStore(store_folder(ready)))
    assert [training(config).lr for config in named] == RATES


def test_no_test_row_decides(ready: Path) -> None:
    """The first fold's test targets are turned round: the same losses, and so the same choice."""
    set_search(ready, {"method": "vanilla", "grid": [{"lr": RATES}]})
    (before,) = searched(ready)
    with h5py.File(ready / processed_file("diabetes"), "r+") as file:
        y, rows = file["y"][:], file["splits/fold0/test"][:]
        y[rows] = 1000.0 - y[rows]
        file["y"][:] = y
    (after,) = searched(ready)
    pairs = list(zip(before["candidates"], after["candidates"], strict=True))
    assert all(a["keys"] != b["keys"] for a, b in pairs), "trained again, on the other file"
    assert [a["val_loss"] for a, _ in pairs] == [b["val_loss"] for _, b in pairs]
    assert chosen(before) == chosen(after)
