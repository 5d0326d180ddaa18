"""Computing the runs of a stage, side by side, or taking them from the store."""

from __future__ import annotations

import json
import os
import platform
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from mn.data.split import load_split
from mn.engine.codeversion import code_version
from mn.engine.config import ExecutionSettings, RunConfig
from mn.engine.devices import resolve_device
from mn.engine.event import Event
from mn.engine.fit import HISTORY, fit
from mn.engine.interrupt import Interrupted, StopRequest, stop_on_signal
from mn.engine.store import RunStore, StoredRun, run_key
from mn.engine.workers import side_by_side
from mn.errors import MNError
from mn.files import sha256

_PACKAGES = ("torch", "numpy", "scikit-learn", "h5py")


def key_of(config: RunConfig, data_sha256: str) -> str:
    """The store's key of a run on a given input file."""
    module = "mn.baselines.knn" if config.method == "knn" else "mn.engine.fit"
    return run_key(config, data=data_sha256, code=code_version(module))


def compute_runs(
    configs: Sequence[RunConfig],
    data_file: Path,
    store: RunStore,
    *,
    execution: ExecutionSettings,
    progress: Callable[[Event], None],
) -> list[StoredRun]:
    """Every run, in order: from the store where it is there, computed where it is not.

    Raises:
        Interrupted: a stop was asked for; unfinished runs have their checkpoints.
        MNError: a run failed. The others were finished first: they are in the store.
    """
    digest = sha256(data_file)
    keys = [key_of(config, digest) for config in configs]
    pending = []
    for key, config in zip(keys, configs, strict=True):
        if run := store.finished(key):
            progress(Event(config.name, "end", note=f"from the store ({key[:8]})", history=_history(run)))
        else:
            pending.append(config)
    with stop_on_signal(store.root) as stop:
        tasks = [_Task(config, data_file, digest, store, execution, stop) for config in pending]
        jobs = min(_jobs(execution), len(tasks))
        outcomes = list(side_by_side(tasks, jobs, progress))
    failures = [outcome for outcome in outcomes if outcome is not None]
    for failure in sorted(failures, key=lambda failure: isinstance(failure, Interrupted)):
        raise failure
    runs = [store.finished(key) for key in keys]
    return [run for run in runs if run is not None]


def _history(run: StoredRun) -> list[dict[str, float]]:
    """The rows of a finished run; kNN has none."""
    file = run.folder / HISTORY
    if not file.exists():
        return []
    rows: list[dict[str, float]] = json.loads(file.read_text(encoding="utf-8"))
    return rows


def _jobs(execution: ExecutionSettings) -> int:
    """How many runs at a time: a process per core, but one device is not shared."""
    if execution.jobs != "auto":
        return execution.jobs
    if resolve_device(execution.device).type != "cpu":
        return 1
    return max(1, (os.cpu_count() or 1) // execution.threads)


@dataclass(frozen=True)
class _Task:
    """One run to compute. It can be sent to another process."""

    config: RunConfig
    data_file: Path
    digest: str
    store: RunStore
    execution: ExecutionSettings
    stop: StopRequest

    def __call__(self, progress: Callable[[Event], None]) -> MNError | Interrupted | None:
        """Compute the run. What a user can act on is handed back, so that the other runs go on."""
        try:
            self._compute(progress)
        except Interrupted as error:
            return error
        except MNError as error:
            progress(Event(self.config.name, "failed", note=str(error)))
            return error
        return None

    def _compute(self, progress: Callable[[Event], None]) -> None:
        if self.stop.made:
            raise Interrupted(f"{self.config.name} was not started")
        torch.set_num_threads(self.execution.threads)
        key = key_of(self.config, self.digest)
        with self.store.claim(key, self.config) as work:
            if run := self.store.finished(key):  # by the process that held the claim before
                note = "computed by another process"
                progress(Event(self.config.name, "end", note=note, history=_history(run)))
                return
            output = work / "output"
            shutil.rmtree(output, ignore_errors=True)
            output.mkdir()
            seconds = self._train(work, output, progress)
            self.store.finish(key, output, self._record(seconds))
        progress(Event(self.config.name, "end", note=f"trained in {seconds:.1f} s"))

    def _train(self, work: Path, output: Path, progress: Callable[[Event], None]) -> float:
        data = load_split(self.data_file, self.config.split)
        if self.config.method == "knn":
            from mn.baselines import knn  # scikit-learn takes seconds to import, and only kNN needs it

            progress(Event(self.config.name, "start", 0, 1))
            start = time.monotonic()
            knn.choose(self.config, data, output)
            return time.monotonic() - start
        return fit(
            self.config,
            data,
            work,
            output,
            execution=self.execution,
            progress=progress,
            stop=self.stop,
        )

    def _record(self, seconds: float) -> dict[str, Any]:
        return {
            "config": self.config.identity(),
            "data_sha256": self.digest,
            "finished": datetime.now(timezone.utc).isoformat(timespec="seconds"),
            "seconds": round(seconds, 3),
            "device": str(resolve_device(self.execution.device)),
            "threads": self.execution.threads,
            "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
            "versions": {
                "python": platform.python_version(),
                **{package: version(package) for package in _PACKAGES},
            },
        }
