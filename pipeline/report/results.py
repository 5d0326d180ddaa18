"""What the earlier stages found out about one data set, read back and checked to belong together."""

from __future__ import annotations

import json
from collections.abc import Hashable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from statistics import fmean
from typing import Any

import h5py
import numpy as np

from mn.analysis.curves import History
from mn.analysis.figures import DictionaryUse, Regions
from mn.data.catalog import Entry
from mn.engine.config import RunConfig
from mn.engine.fit import HISTORY, WEIGHTS
from mn.engine.store import RECORD, StoredRun
from mn.errors import MNError
from mn.files import sha256
from pipeline.evaluate import DATASET, REGIONS, RUNS
from pipeline.export import INDEX
from pipeline.paths import dictionary_folder, evaluation_folder, metrics_file, train_folder
from pipeline.search import SEARCH
from pipeline.train import trained_runs


@dataclass(frozen=True)
class Run:
    """One finished run with its test figures."""

    key: str
    config: RunConfig
    record: dict[str, Any]
    figures: dict[str, float]
    history: History


@dataclass(frozen=True)
class Results:
    """One data set's results."""

    entry: Entry
    metrics: dict[str, dict[str, dict[str, float]]]
    shape: tuple[int, ...]
    splits: dict[str, dict[str, int]]
    runs: list[Run]
    dictionaries: list[DictionaryUse]
    regions: Regions | None
    search: list[dict[str, Any]] = field(default_factory=list)  # the rounds, see pipeline.search

    @property
    def figure(self) -> str:
        """The name of the main figure."""
        return "accuracy" if self.entry.task == "classification" else "mse"

    @cached_property
    def methods(self) -> list[str]:
        return list(self.metrics)

    def of(self, method: str) -> list[Run]:
        return [run for run in self.runs if run.config.row == method]

    def values(self, method: str, figure: str | None = None) -> list[float]:
        """A figure of every run of a method."""
        return [run.figures[figure or self.figure] for run in self.of(method)]

    def compared(self, method: str, figure: str | None = None) -> dict[Hashable, float]:
        """A figure of a method by what it shares with other methods: the fold or, with one split, the seed.

        Seeds on one fold share its rows and are no repeats for a test: a fold's figure is their mean.
        """
        runs, values = self.of(method), self.values(method, figure)
        folds = len({run.config.split for run in self.runs}) > 1
        grouped: dict[Hashable, list[float]] = {}
        for run, value in zip(runs, values, strict=True):
            grouped.setdefault(run.config.split if folds else run.config.seed, []).append(value)
        return {key: fmean(own) for key, own in grouped.items()}


def read_results(root: Path, entry: Entry) -> Results:
    """All results of a data set, or one line on what is missing and which command makes it."""
    name = entry.name
    stored = trained_runs(root, name)
    evaluation = root / evaluation_folder(name)
    metrics = _read_json(root / metrics_file(name), f"pipeline evaluate {name}")
    rows = _read_json(evaluation / RUNS, f"pipeline evaluate {name}")
    sizes = _read_json(evaluation / DATASET, f"pipeline evaluate {name}")
    if [row["key"] for row in rows] != [run.key for run in stored]:
        raise MNError(f"{evaluation / RUNS}: not of the runs trained last; run: pipeline evaluate {name}")
    regions, search = evaluation / REGIONS, root / train_folder(name) / SEARCH
    return Results(
        entry=entry,
        metrics=metrics,
        shape=tuple(sizes["shape"]),
        splits=sizes["splits"],
        runs=[_run(run, row, name) for run, row in zip(stored, rows, strict=True)],
        dictionaries=_dictionaries(root, name, stored),
        regions=Regions.read(regions) if regions.exists() else None,
        search=_read_json(search, f"pipeline train {name}") if search.exists() else [],
    )


def _run(stored: StoredRun, row: dict[str, Any], dataset: str) -> Run:
    record = _read_json(stored.folder / RECORD, f"pipeline train {dataset}")
    history = stored.folder / HISTORY
    return Run(
        key=stored.key,
        config=stored.config,
        record=record,
        figures={key: value for key, value in row.items() if isinstance(value, float)},
        history=json.loads(history.read_text(encoding="utf-8")) if history.exists() else [],
    )


def _dictionaries(root: Path, dataset: str, stored: list[StoredRun]) -> list[DictionaryUse]:
    """The dictionaries of the runs that have one; exported from these very weights, or refused."""
    folder = root / dictionary_folder(dataset)
    command = f"pipeline export {dataset}"
    exported = {row["run"]: row for row in _read_json(folder / INDEX, command)}
    uses = []
    for run in stored:
        config = run.config
        if config.dictionary is None:
            continue
        row = exported.get(config.name, {})
        if not row or sha256(folder / row["model"]) != sha256(run.folder / WEIGHTS):
            raise MNError(f"{folder / INDEX}: not of the runs trained last; run: {command}")
        with h5py.File(folder / row["dictionary"], "r") as file:
            group = file["attention/test"]
            uses.append(
                DictionaryUse(
                    method=config.row,
                    run=config.name,
                    weight=group["weight"][:],
                    effective=group["effective"][:],
                    share_in_use=float(group.attrs["share_in_use"]),
                    alpha=float(np.mean(file.attrs["alpha"])),
                )
            )
    return uses


def _read_json(path: Path, command: str) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise MNError(f"{path}: no such file; run: {command}") from None
    except json.JSONDecodeError as error:
        raise MNError(f"{path}: not valid JSON ({error}); run: {command}") from None
