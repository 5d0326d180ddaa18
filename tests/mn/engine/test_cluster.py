"""Tasks on a real Dask cluster of local processes: lost workers, stop requests, and what is said when."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from mn.engine.cluster import on_cluster
from mn.engine.config import NeighbourSettings, RunConfig
from mn.engine.event import Event
from mn.engine.interrupt import Interrupted, StopRequest
from mn.engine.store import RunStore
from mn.engine.workers import side_by_side
from mn.errors import MNError
from mn.files import replacing
from tests.cluster import HOST, ROOT, Cluster, end

CONFIG = RunConfig(dataset="d", split="main", method="knn", seed=0, neighbours=NeighbourSettings(k=[1]))


@dataclass(frozen=True)
class Steps:
    """A run of the store that counts to ``steps``, with a checkpoint after each.

    The first time that it gets to step ``dies_at`` it kills its worker.
    """

    name: str
    root: Path
    steps: int = 4
    dies_at: int = -1

    def __call__(self, progress: Callable[[Event], None]) -> str:
        store = RunStore(self.root)
        with store.claim(self.name, CONFIG) as work:
            if store.finished(self.name):
                return self.name
            checkpoint = work / "checkpoint.json"
            first = json.loads(checkpoint.read_text()) if checkpoint.exists() else 0
            progress(Event(self.name, "start", first, self.steps))
            for step in range(first, self.steps):
                mark = self.root / f"{self.name}-died"
                if step == self.dies_at and not mark.exists():
                    mark.touch()
                    os.kill(os.getpid(), signal.SIGKILL)
                with replacing(checkpoint) as aside:
                    aside.write_text(json.dumps(step + 1))
            output = work / "output"
            output.mkdir()
            store.finish(self.name, output, {"first": first, "config": CONFIG.identity()})
            with (self.root / "finished.log").open("a") as log:
                log.write(f"{self.name}\n")
        progress(Event(self.name, "end", self.steps, self.steps))
        return self.name


@dataclass(frozen=True)
class UntilStopped:
    """Tells that it runs, then works until a stop is asked for; gives up if that takes too long."""

    stop: StopRequest
    name: str = "endless"

    def __call__(self, progress: Callable[[Event], None]) -> Interrupted | None:
        progress(Event(self.name, "start"))
        deadline = time.monotonic() + 20
        while not self.stop.made:
            if time.monotonic() > deadline:
                return None
        return Interrupted("endless stopped")


@dataclass(frozen=True)
class Fails:
    name: str = "fails"

    def __call__(self, progress: Callable[[Event], None]) -> str:
        progress(Event(self.name, "start"))
        raise ZeroDivisionError("a mistake in a task")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("dask")) as cluster:
        yield cluster


def ignore(event: Event) -> None:
    """For tests that are not about events."""


def test_run_of_a_killed_worker_goes_on_from_its_checkpoint_at_another(
    cluster: Cluster, tmp_path: Path
) -> None:
    events: list[Event] = []
    tasks = [
        Steps("a", tmp_path),
        Steps("b", tmp_path, dies_at=2),
        Steps("c", tmp_path),
        Steps("d", tmp_path),
    ]
    outcomes = list(side_by_side(tasks, 1, events.append, scheduler=cluster.have(2), shared=tmp_path))
    assert sorted(outcomes) == list("abcd")
    assert sorted((tmp_path / "finished.log").read_text().split()) == list("abcd"), "each once"
    runs = {run.key: run for run in RunStore(tmp_path).entries()}
    assert {key: (run.finished, run.record["first"]) for key, run in runs.items()} == {
        "a": (True, 0),
        "b": (True, 2),
        "c": (True, 0),
        "d": (True, 0),
    }
    assert sorted(event.run for event in events if event.what == "end") == list("abcd")
    assert Event("b", "start", 2, 4) in events


def test_stop_request_reaches_the_workers(cluster: Cluster, tmp_path: Path) -> None:
    stop = StopRequest(tmp_path / "stop")

    def ask_to_stop(event: Event) -> None:
        assert event == Event("endless", "start")
        stop.file.touch()

    (outcome,) = on_cluster([UntilStopped(stop)], cluster.have(1), ask_to_stop)
    assert isinstance(outcome, Interrupted)


def test_run_that_kills_every_worker_is_named_after_the_others_are_finished(
    cluster: Cluster, tmp_path: Path
) -> None:
    tasks = [Steps("deadly", tmp_path, dies_at=1), Steps("a", tmp_path), Steps("b", tmp_path)]
    outcomes: list[str] = []
    with pytest.raises(MNError, match=r"^deadly: every Dask worker .* lost.*--memory-limit"):
        outcomes.extend(on_cluster(tasks, cluster.have(2), ignore, losses=1))
    assert sorted((tmp_path / "finished.log").read_text().split()) == ["a", "b"]


def test_error_of_a_task_is_raised_after_the_others_are_finished(cluster: Cluster, tmp_path: Path) -> None:
    tasks = [Fails(), Steps("a", tmp_path)]
    with pytest.raises(ZeroDivisionError, match="a mistake in a task"):
        list(on_cluster(tasks, cluster.have(1), ignore))
    assert RunStore(tmp_path).finished("a")


def test_worker_that_does_not_see_the_shared_folder_is_refused(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # the workers were started elsewhere
    with pytest.raises(MNError, match=r"worker tcp://.* does not see store: .* MN_STORE"):
        list(on_cluster([Steps("a", tmp_path)], cluster.have(1), ignore, shared=Path("store")))
    assert list((tmp_path / "store").iterdir()) == []


def test_last_worker_killed_is_said_and_not_waited_for(cluster: Cluster, tmp_path: Path) -> None:
    with pytest.raises(
        MNError, match=r"has no workers for this: start some with `dask worker tcp://.*goes on"
    ):
        list(on_cluster([Steps("a", tmp_path, dies_at=0)], cluster.have(1), ignore, patience=1))


def test_scheduler_without_workers_is_said_and_not_waited_for(cluster: Cluster, tmp_path: Path) -> None:
    with pytest.raises(MNError, match=r"has no workers for this: start some with `dask worker tcp://"):
        list(on_cluster([Steps("a", tmp_path)], cluster.have(0), ignore, patience=0.5))


def test_worker_with_other_code_is_refused(cluster: Cluster, tmp_path: Path) -> None:
    for package in ("mn", "tests"):
        shutil.copytree(ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__"))
    with (tmp_path / "mn/engine/store.py").open("a") as file:
        file.write("\nANOTHER = 1\n")
    cluster.end_workers()
    cluster.have(1, tmp_path)
    try:
        with pytest.raises(MNError, match=r"worker tcp://.* another version of this project: .* restart"):
            list(on_cluster([Steps("a", tmp_path)], cluster.address, ignore))
    finally:
        cluster.end_workers()


def test_lost_scheduler_is_said_and_not_waited_for(cluster: Cluster, tmp_path: Path) -> None:
    task = UntilStopped(StopRequest(tmp_path / "stop"))
    with pytest.raises(MNError, match=r"lost the Dask scheduler tcp://.*goes on"):
        list(on_cluster([task], cluster.have(1), lambda _: end(cluster.scheduler)))


@pytest.mark.parametrize("scheme", ["tcp://", "", "morse://"])
def test_no_scheduler_at_the_address_is_one_line(scheme: str, tmp_path: Path) -> None:
    with socket.socket() as taken:  # bound but not listening: nobody else gets the port, nobody answers
        taken.bind((HOST, 0))
        address = f"{scheme}{HOST}:{taken.getsockname()[1]}"
        with pytest.raises(MNError, match=f"^no Dask scheduler at {address} .*train.scheduler$"):
            list(on_cluster([Steps("a", tmp_path)], address, ignore, patience=0.5))


def test_missing_package_is_named_with_the_command_that_installs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    monkeypatch.delitem(sys.modules, "mn.engine.cluster")
    with pytest.raises(MNError, match=r"pip install 'meta-neighborhoods\[distributed\]'"):
        list(side_by_side([Steps("a", tmp_path)], 1, ignore, scheduler="tcp://127.0.0.1:8786"))


def test_nothing_to_do_needs_no_scheduler() -> None:
    assert list(side_by_side([], 1, ignore, scheduler="tcp://127.0.0.1:1")) == []


@pytest.mark.parametrize("place", ["work/k/output", "elsewhere"], ids=["its work removed", "its work left"])
def test_second_process_to_finish_a_run_leaves_the_first_one_s(tmp_path: Path, place: str) -> None:
    """Over NFS a process can lose its lock and not know of it; here its lock file is taken away."""
    store, late = RunStore(tmp_path), tmp_path / place
    with store.claim("k", CONFIG):
        (tmp_path / "work/k.lock").unlink()
        assert Steps("k", tmp_path)(ignore) == "k"
        before = RunStore(tmp_path).entries()[0].record
        if place == "elsewhere":
            late.mkdir()
        run = store.finish("k", late, {"first": "late"})
    assert run.record == before
    assert not late.exists()
