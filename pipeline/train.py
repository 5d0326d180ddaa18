"""Stage 3: every run of a data set, from the store or computed now."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

from mn.engine.config import RunConfig
from mn.engine.devices import resolve_device
from mn.engine.distributed import process_group
from mn.engine.event import Event
from mn.engine.live import LiveMetrics
from mn.engine.progress import PlannedRun, run_progress
from mn.engine.runs import compute_runs
from mn.engine.store import RunStore, StoredRun
from mn.errors import MNError
from mn.files import link_or_copy, replacing_folder
from pipeline.params import plan
from pipeline.paths import live_folder, processed_file, store_folder, train_folder
from pipeline.search import SEARCH, search

RUNS = "runs.json"


def train(root: Path, dataset: str) -> Path:
    """Compute the runs that are not in the store and lay all of them out in ``results/<dataset>/train/``.

    Under ``torchrun`` every process calls this: they share the batches, the first shows progress and writes.
    """
    planned = plan(root, dataset)
    data_file = root / processed_file(dataset)
    if not data_file.exists():
        raise MNError(f"{data_file}: no such file; run: pipeline preprocess {dataset}")
    target = root / train_folder(dataset)
    with process_group(resolve_device(planned.execution.device)) as ranks:

        def compute(configs: Sequence[RunConfig], title: str, live: Path | None = None) -> list[StoredRun]:
            with ExitStack() as shown:
                expected = [_planned(config) for config in configs]
                tell = _shown(f"{title} {dataset}", expected, live, shown) if ranks.main else _silent
                return compute_runs(
                    configs,
                    data_file,
                    RunStore(store_folder(root)),
                    execution=planned.execution,
                    progress=tell,
                    ranks=ranks,
                )

        found, searched = search(planned, compute)
        runs = compute(planned.final(found), "train", root / live_folder(dataset))
        if ranks.main:
            with replacing_folder(target) as aside:
                for run in runs:
                    _lay_out(run, aside)
                index = [{"name": run.config.name, "key": run.key, "variant": run.variant} for run in runs]
                (aside / RUNS).write_text(json.dumps(index, indent=1), encoding="utf-8")
                if searched:
                    (aside / SEARCH).write_text(json.dumps(searched, indent=1), encoding="utf-8")
    return target


def _shown(
    title: str, expected: list[PlannedRun], live: Path | None, stack: ExitStack
) -> Callable[[Event], None]:
    """Progress for people and, in the folder ``live``, figures for ``dvc plots``, until the stack closes."""
    listeners: list[Callable[[Event], None]] = [stack.enter_context(run_progress(title, expected))]
    if live is not None:
        listeners.append(stack.enter_context(LiveMetrics(live, expected)))

    def tell(event: Event) -> None:
        for listener in listeners:
            listener(event)

    return tell


def _silent(_: Event) -> None:
    """What the other ranks show."""


def trained_runs(root: Path, dataset: str) -> list[StoredRun]:
    """The runs that the train stage laid out, in its order."""
    folder = root / train_folder(dataset)
    try:
        index = json.loads((folder / RUNS).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise MNError(f"{folder / RUNS}: no such file; run: pipeline train {dataset}") from None
    return [StoredRun(row["key"], folder / row["name"], True, row["variant"]) for row in index]


def _planned(config: RunConfig) -> PlannedRun:
    return PlannedRun(config.name, config.row, config.training.epochs if config.training else 0)


def _lay_out(run: StoredRun, folder: Path) -> None:
    target = folder / run.config.name
    target.mkdir()
    for file in run.folder.iterdir():
        link_or_copy(file, target / file.name)
