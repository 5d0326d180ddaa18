"""Computing a run, or taking it from the store."""

from __future__ import annotations

import platform
import shutil
import time
from collections.abc import Iterable
from datetime import datetime, timezone
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from mn.data.split import load_split
from mn.engine.codeversion import code_version
from mn.engine.config import ExecutionSettings, RunConfig
from mn.engine.devices import resolve_device
from mn.engine.fit import fit
from mn.engine.interrupt import Interrupt, interruptible
from mn.engine.progress import RunProgress
from mn.engine.store import RunStore, StoredRun, run_key
from mn.files import sha256

_PACKAGES = ("torch", "numpy", "scikit-learn", "h5py")


def key_of(config: RunConfig, data_sha256: str) -> str:
    """The store's key of a run on a given input file."""
    module = "mn.baselines.knn" if config.method == "knn" else "mn.engine.fit"
    return run_key(config, data=data_sha256, code=code_version(module))


def compute_runs(
    configs: Iterable[RunConfig],
    data_file: Path,
    store: RunStore,
    *,
    execution: ExecutionSettings,
    progress: RunProgress,
) -> list[StoredRun]:
    """Every run, in order: from the store where it is there, computed where it is not."""
    digest = sha256(data_file)
    with interruptible() as interrupt:
        return [
            _compute(config, data_file, digest, store, execution, progress, interrupt) for config in configs
        ]


def _compute(
    config: RunConfig,
    data_file: Path,
    digest: str,
    store: RunStore,
    execution: ExecutionSettings,
    progress: RunProgress,
    interrupt: Interrupt,
) -> StoredRun:
    key = key_of(config, digest)
    run = store.finished(key)
    if run is None:
        with store.claim(key, config) as work:
            run = store.finished(key)  # by the process that held the claim before
            if run is None:
                output = work / "output"
                shutil.rmtree(output, ignore_errors=True)
                output.mkdir()
                seconds = _train(config, data_file, work, output, execution, progress, interrupt)
                run = store.finish(key, output, _record(config, digest, execution, seconds))
                progress.end(config.name, f"trained in {seconds:.1f} s")
                return run
    progress.end(config.name, f"from the store ({key[:8]})")
    return run


def _train(
    config: RunConfig,
    data_file: Path,
    work: Path,
    output: Path,
    execution: ExecutionSettings,
    progress: RunProgress,
    interrupt: Interrupt,
) -> float:
    data = load_split(data_file, config.split)
    if config.method == "knn":
        from mn.baselines import knn  # scikit-learn takes seconds to import, and only kNN needs it

        start = time.monotonic()
        knn.choose(config, data, output)
        return time.monotonic() - start
    return fit(config, data, work, output, execution=execution, progress=progress, interrupt=interrupt)


def _record(config: RunConfig, digest: str, execution: ExecutionSettings, seconds: float) -> dict[str, Any]:
    return {
        "config": config.identity(),
        "data_sha256": digest,
        "finished": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "seconds": round(seconds, 3),
        "device": str(resolve_device(execution.device)),
        "threads": torch.get_num_threads(),
        "machine": f"{platform.system()} {platform.machine()}",
        "versions": {
            "python": platform.python_version(),
            **{package: version(package) for package in _PACKAGES},
        },
    }
