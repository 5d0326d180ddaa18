"""Stage 3: every run of a data set, from the store or computed now."""

from __future__ import annotations

import json
from pathlib import Path

from mn.engine.config import RunConfig
from mn.engine.event import Event
from mn.engine.live import LiveMetrics
from mn.engine.progress import PlannedRun, run_progress
from mn.engine.runs import compute_runs
from mn.engine.store import RunStore, StoredRun
from mn.errors import MNError
from mn.files import link_or_copy, replacing_folder
from pipeline.params import plan
from pipeline.paths import live_folder, processed_file, store_folder, train_folder

RUNS = "runs.json"


def train(root: Path, dataset: str) -> Path:
    """Compute the runs that are not in the store and lay all of them out in ``results/<dataset>/train/``."""
    planned = plan(root, dataset)
    data_file = root / processed_file(dataset)
    if not data_file.exists():
        raise MNError(f"{data_file}: no such file; run: pipeline preprocess {dataset}")
    expected = [_planned(config) for config in planned.runs]
    with (
        run_progress(f"train {dataset}", expected) as progress,
        LiveMetrics(root / live_folder(dataset), expected) as live,
    ):

        def tell(event: Event) -> None:
            progress(event)
            live(event)

        runs = compute_runs(
            planned.runs,
            data_file,
            RunStore(store_folder(root)),
            execution=planned.execution,
            progress=tell,
        )
    target = root / train_folder(dataset)
    with replacing_folder(target) as aside:
        for run in runs:
            _lay_out(run, aside)
        index = [{"name": run.config.name, "key": run.key} for run in runs]
        (aside / RUNS).write_text(json.dumps(index, indent=1), encoding="utf-8")
    return target


def trained_runs(root: Path, dataset: str) -> list[StoredRun]:
    """The runs that the train stage laid out, in its order."""
    folder = root / train_folder(dataset)
    try:
        index = json.loads((folder / RUNS).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise MNError(f"{folder / RUNS}: no such file; run: pipeline train {dataset}") from None
    return [StoredRun(row["key"], folder / row["name"], True) for row in index]


def _planned(config: RunConfig) -> PlannedRun:
    return PlannedRun(config.name, config.method, config.training.epochs if config.training else 0)


def _lay_out(run: StoredRun, folder: Path) -> None:
    target = folder / run.config.name
    target.mkdir()
    for file in run.folder.iterdir():
        link_or_copy(file, target / file.name)
