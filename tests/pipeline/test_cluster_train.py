"""The train stage on a real Dask cluster: a worker killed in the middle of a run costs no run."""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from mn.engine.fit import WEIGHTS
from mn.engine.runs import key_of
from mn.files import sha256
from pipeline.params import plan
from pipeline.paths import processed_file
from pipeline.train import train, trained_runs
from tests.cluster import Cluster, end
from tests.conftest import set_params

EPOCHS = 30  # a run has to be at work still when its first line arrives


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("dask")) as cluster:
        yield cluster


class KillOneWorker(io.StringIO):
    """Standard output that at the first line about an epoch kills the worker which that run is at.

    Args:
        cluster: whose worker.
        locks: by the runs' names, the file that a process holds open while it is at work on one.
    """

    def __init__(self, cluster: Cluster, locks: dict[str, Path]) -> None:
        super().__init__()
        self.killed = ""  # the run's name
        self._cluster, self._locks = cluster, locks

    def write(self, text: str) -> int:
        told = re.search(rf"(\S+): epoch (\d+)/{EPOCHS} ", text)
        # In its first half: what is over before the line is here cannot be killed.
        if told and not self.killed and 2 * int(told[2]) <= EPOCHS:
            lock = str(self._locks[told[1]])
            for worker in self._cluster.workers:
                if lock in (file.path for file in psutil.Process(worker.pid).open_files()):
                    end(worker)
                    self.killed = told[1]
        return super().write(text)


def locks_of(root: Path, store: Path) -> dict[str, Path]:
    digest = sha256(root / processed_file("spiral"))
    return {
        config.name: store / "work" / f"{key_of(config, digest)}.lock" for config in plan(root, "spiral").runs
    }


def weights_of(root: Path) -> dict[str, dict[str, Tensor]]:
    return {run.config.name: load_file(run.folder / WEIGHTS) for run in trained_runs(root, "spiral")}


def test_runs_of_a_killed_worker_are_finished_by_another(
    cluster: Cluster, prepared: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    root = prepared("spiral").resolve()
    settings = {"epochs": EPOCHS, "checkpoint_seconds": 0.0}
    set_params(root, methods=["mn"], seeds=[0, 1, 2], train=settings)
    monkeypatch.setenv("MN_STORE", str(root / "store-of-one"))
    train(root, "spiral")
    alone = weights_of(root)

    set_params(root, train={"scheduler": cluster.have(2)})
    store = root / "store-of-the-cluster"
    monkeypatch.setenv("MN_STORE", str(store))
    shown = KillOneWorker(cluster, locks_of(root, store))
    monkeypatch.setattr(sys, "stdout", shown)
    train(root, "spiral")
    lines = shown.getvalue().splitlines()

    assert shown.killed, "no worker was at work on a run that told of an epoch"
    resumed = [line for line in lines if "goes on after epoch" in line]
    assert len(resumed) == 1
    assert f"{shown.killed}: goes on after epoch" in resumed[0]
    ends = sorted(line.split("] ")[1].split(":")[0] for line in lines if "trained in" in line)
    assert ends == ["mn-seed0", "mn-seed1", "mn-seed2"], "each once"
    together = weights_of(root)
    assert together.keys() == alone.keys()
    different = [
        f"{name} {key}"
        for name, weights in together.items()
        for key, tensor in weights.items()
        if not torch.equal(tensor, alone[name][key])
    ]
    assert different == []
