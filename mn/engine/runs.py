"""Computing the runs of a stage, side by side, or taking them from the store."""

from __future__ import annotations

import json
import os
import platform
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from mn.data.split import load_split
from mn.engine.codeversion import code_version
from mn.engine.config import ExecutionSettings, RunConfig
from mn.engine.devices import resolve_device
from mn.engine.distributed import Ranks, any_rank, barrier, broadcast_object
from mn.engine.event import Event
from mn.engine.fit import HISTORY, fit
from mn.engine.interrupt import Interrupted, StopRequest, stop_on_signal
from mn.engine.store import RunStore, StoredRun, run_key
from mn.engine.workers import side_by_side
from mn.errors import MNError
from mn.files import sha256

_PACKAGES = ("torch", "numpy", "scikit-learn", "h5py")


# What the training loop imports but only one method uses: editing it leaves the other methods' runs alone.
_OF_ONE_METHOD = {"maxl": "mn.baselines.maxl", "wide": "mn.baselines.wide"}
# Methods that have no use for the training loop: a module each, with ``choose`` and ``predict``.
OF_THEIR_OWN = {method: f"mn.baselines.{method}" for method in ("knn", "hgb", "tabm")}


def key_of(config: RunConfig, data_sha256: str) -> str:
    """The store's key of a run on a given input file."""
    if config.method in OF_THEIR_OWN:
        code = code_version(OF_THEIR_OWN[config.method])
    else:
        others = tuple(module for method, module in _OF_ONE_METHOD.items() if method != config.method)
        code = code_version("mn.engine.fit", without=others)
    return run_key(config, data=data_sha256, code=code)


def own_module(method: str) -> Any:
    """The module of such a method. Imported late: scikit-learn takes seconds, and the others do without."""
    return import_module(OF_THEIR_OWN[method])


def compute_runs(
    configs: Sequence[RunConfig],
    data_file: Path,
    store: RunStore,
    *,
    execution: ExecutionSettings,
    progress: Callable[[Event], None],
    ranks: Ranks = Ranks(),  # noqa: B008 (frozen)
) -> list[StoredRun]:
    """Every run, in order: from the store where it is there, computed where it is not.

    With several ranks (see :mod:`mn.engine.distributed`) all of them call this and share every batch of
    every run; the main one alone writes.

    Raises:
        Interrupted: a stop was asked for; unfinished runs have their checkpoints.
        MNError: a run failed. The others were finished first: they are in the store.
    """
    # Absolute: the workers of a cluster have working directories of their own.
    data_file, store = data_file.resolve(), RunStore(store.root.resolve())
    digest = sha256(data_file)
    keys = [key_of(config, digest) for config in configs]
    finished = broadcast_object([store.finished(key) is not None for key in keys])
    pending: dict[str, RunConfig] = {}  # by key: two rows of a table may be one run
    for key, config, done in zip(keys, configs, finished, strict=True):
        if done:
            history = _history(store.finished(key))
            progress(Event(config.name, "end", note=f"from the store ({key[:8]})", history=history))
        elif key in pending:
            progress(Event(config.name, "end", note=f"the same run as {pending[key].name}"))
        else:
            pending[key] = config
    with stop_on_signal(store.root) as stop:
        tasks = [
            _Task(config, data_file, digest, store, execution, stop, ranks) for config in pending.values()
        ]
        outcomes = list(
            side_by_side(
                tasks,
                min(_jobs(execution, ranks), len(tasks)),
                progress,
                scheduler=None if execution.scheduler == "local" else execution.scheduler,
                shared=store.root,
            )
        )
    failures = [outcome for outcome in outcomes if outcome is not None]
    for failure in sorted(failures, key=lambda failure: isinstance(failure, Interrupted)):
        raise failure
    barrier()  # the main rank has put the last run into the store
    found = zip(configs, map(store.finished, keys), strict=True)
    return [replace(run, variant=config.variant) for config, run in found if run is not None]


def _history(run: StoredRun | None) -> list[dict[str, float]]:
    """The rows of a finished run; kNN has none."""
    if run is None or not (run.folder / HISTORY).exists():
        return []
    rows: list[dict[str, float]] = json.loads((run.folder / HISTORY).read_text(encoding="utf-8"))
    return rows


def _jobs(execution: ExecutionSettings, ranks: Ranks) -> int:
    """How many runs at a time: a process per core, but one device is not shared."""
    if ranks.world > 1:
        if execution.jobs not in ("auto", 1) or execution.scheduler != "local":
            raise MNError(
                "under torchrun the processes share one run at a time: "
                "leave train.jobs at auto and train.scheduler at local"
            )
        return 1
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
    ranks: Ranks

    @property
    def name(self) -> str:
        return self.config.name

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
        if any_rank(self.stop.made):
            raise Interrupted(f"{self.config.name} was not started")
        torch.set_num_threads(self.execution.threads)
        key = key_of(self.config, self.digest)
        with self._claimed(key) as work:
            if broadcast_object(self.store.finished(key) is not None):
                # by the process that held the claim before
                history = _history(self.store.finished(key))
                progress(Event(self.config.name, "end", note="computed by another process", history=history))
                return
            output = work / "output"
            if self.ranks.main:
                shutil.rmtree(output, ignore_errors=True)
                output.mkdir()
            seconds = self._train(work, output, progress)
            if self.ranks.main:
                self.store.finish(key, output, self._record(seconds))
        progress(Event(self.config.name, "end", note=f"trained in {seconds:.1f} s"))

    @contextmanager
    def _claimed(self, key: str) -> Iterator[Path]:
        """The run's work folder: the main rank holds it for all of them."""
        if not self.ranks.main:
            yield broadcast_object(Path())
            return
        with self.store.claim(key, self.config) as work:
            yield broadcast_object(work)

    def _train(self, work: Path, output: Path, progress: Callable[[Event], None]) -> float:
        if self.config.method in OF_THEIR_OWN:
            return self._choose(output, progress)
        return fit(
            self.config,
            load_split(self.data_file, self.config.split),
            work,
            output,
            execution=self.execution,
            progress=progress,
            stop=self.stop,
            ranks=self.ranks,
        )

    def _choose(self, output: Path, progress: Callable[[Event], None]) -> float:
        if not self.ranks.main:
            return 0.0
        progress(Event(self.config.name, "start", 0, 1))
        start = time.monotonic()
        data = load_split(self.data_file, self.config.split)
        own_module(self.config.method).choose(self.config, data, output, self.stop)
        return time.monotonic() - start

    def _record(self, seconds: float) -> dict[str, Any]:
        packages = (*_PACKAGES, "tabm") if self.config.method == "tabm" else _PACKAGES
        return {
            "config": self.config.identity(),
            "data_sha256": self.digest,
            "finished": datetime.now(timezone.utc).isoformat(timespec="seconds"),
            "seconds": round(seconds, 3),
            "device": str(resolve_device(self.execution.device)),
            "processes": self.ranks.world,
            "threads": self.execution.threads,
            "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
            "versions": {
                "python": platform.python_version(),
                **{package: version(package) for package in packages},
            },
        }
