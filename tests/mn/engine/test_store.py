"""The run store: what a key covers, and that no half-written run is ever taken for a finished one."""

from __future__ import annotations

import contextlib
import multiprocessing
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from mn.engine.config import NeighbourSettings, RunConfig
from mn.engine.store import RunStore, run_key


def config(**changes: object) -> RunConfig:
    base = {"dataset": "d", "split": "main", "method": "knn", "seed": 0}
    return RunConfig.model_validate({**base, "neighbours": NeighbourSettings(k=[1]), **changes})


def compute(store: RunStore, key: str, content: str = "x") -> None:
    with store.claim(key, config()) as work:
        output = work / "output"
        output.mkdir()
        (output / "weights").write_text(content)
        store.finish(key, output, {"config": config().identity()})


@pytest.mark.parametrize(
    "other",
    [
        run_key(config(seed=1), data="a", code="b"),
        run_key(config(split="fold1"), data="a", code="b"),
        run_key(config(neighbours=NeighbourSettings(k=[1, 2])), data="a", code="b"),
        run_key(config(), data="A", code="b"),
        run_key(config(), data="a", code="B"),
    ],
    ids=["seed", "split", "setting", "data", "code"],
)
def test_key_covers_all_that_changes_a_result(other: str) -> None:
    assert run_key(config(), data="a", code="b") != other


def test_key_is_a_function_of_its_parts() -> None:
    assert run_key(config(), data="a", code="b") == run_key(config(), data="a", code="b")


def test_finished_run_is_found_with_its_files(tmp_path: Path) -> None:
    store = RunStore(tmp_path)
    compute(store, "k", "content")
    run = store.finished("k")
    assert run is not None
    assert (run.folder / "weights").read_text() == "content"
    assert run.config == config()


def test_a_run_bears_the_name_it_was_asked_for_by(tmp_path: Path) -> None:
    compute(RunStore(tmp_path), "k")
    run = RunStore(tmp_path).finished("k")
    assert run is not None
    assert (run.variant, run.config.row, run.config.name) == (None, "knn", "knn-seed0")
    asked = replace(run, variant="knn_weighted")
    assert (asked.config.row, asked.config.name) == ("knn_weighted", "knn_weighted-seed0")


def test_the_name_of_a_row_is_no_part_of_a_runs_identity(tmp_path: Path) -> None:
    """Two rows of a table may be the same run: it is computed and stored once."""
    asked = config(variant="knn_weighted")
    assert asked.identity() == config().identity()
    assert run_key(asked, data="a", code="b") == run_key(config(), data="a", code="b")
    with RunStore(tmp_path).claim("k", asked):
        (run,) = RunStore(tmp_path).entries()
    assert run.config == config()


def test_finished_files_are_read_only(tmp_path: Path) -> None:
    """results/ shares them by hard links: writing there must not change the store."""
    store = RunStore(tmp_path)
    compute(store, "k")
    assert {file.stat().st_mode & 0o222 for file in (tmp_path / "runs/k").iterdir()} == {0}


def test_failed_run_stays_unfinished(tmp_path: Path) -> None:
    store = RunStore(tmp_path)
    with contextlib.suppress(RuntimeError), store.claim("k", config()) as work:
        (work / "output").mkdir()
        (work / "output/weights").write_text("half")
        raise RuntimeError("power cut")
    assert store.finished("k") is None
    assert [(run.key, run.finished) for run in store.entries()] == [("k", False)]


def test_work_folder_survives_for_the_next_claim(tmp_path: Path) -> None:
    store = RunStore(tmp_path)
    with store.claim("k", config()) as work:
        (work / "checkpoint.pt").write_text("state")
    with store.claim("k", config()) as work:
        assert (work / "checkpoint.pt").read_text() == "state"


def test_finishing_leaves_no_work_behind(tmp_path: Path) -> None:
    store = RunStore(tmp_path)
    compute(store, "k")
    assert list((tmp_path / "work").iterdir()) == []


def _hold(root: Path, pipe: Connection) -> None:
    with RunStore(root).claim("k", config()):
        pipe.send("held")
        pipe.recv()


def test_run_at_work_in_another_process_is_not_removed(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=_hold, args=(tmp_path, there))
    process.start()
    assert here.recv() == "held"
    store = RunStore(tmp_path)
    (run,) = store.entries()
    assert not store.remove(run)
    process.kill()
    process.join()
    assert store.remove(run), "the lock goes with the process, however it ends"
    assert store.entries() == []


def test_removed_run_is_gone(tmp_path: Path) -> None:
    store = RunStore(tmp_path)
    compute(store, "k")
    (run,) = store.entries()
    assert store.remove(run)
    assert store.finished("k") is None
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_store_is_listed_while_a_run_replaces_its_files(tmp_path: Path) -> None:
    """As a link to nothing is, so is a file renamed since its folder was read: listed, but gone."""
    store = RunStore(tmp_path)
    with store.claim("k", config()) as work:
        (work / "checkpoint.pt").symlink_to(work / "nothing")
        (run,) = store.entries()
        assert run.modified > 0
        assert run.size == (work / "run.json").stat().st_size
