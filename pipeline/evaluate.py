"""Stage 4: the test part, looked at for the first time."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from mn.analysis.curves import curve_rows
from mn.analysis.metrics import accuracy, mse, summarise_methods
from mn.analysis.predict import predict_run
from mn.analysis.regions import write_regions
from mn.data.hdf5 import describe
from mn.data.split import SplitData, load_split
from mn.engine.config import RunConfig
from mn.engine.fit import HISTORY, SNAPSHOTS
from mn.engine.store import StoredRun
from mn.files import replacing, replacing_folder
from pipeline.params import plan
from pipeline.paths import evaluation_folder, metrics_file, plots_folder, processed_file
from pipeline.train import trained_runs

RUNS = "runs.json"
DATASET = "dataset.json"
PREDICTIONS = "predictions.h5"
REGIONS = "regions.h5"


def evaluate(root: Path, dataset: str) -> Path:
    """Predict the test part with every run; write figures, predictions and what plots are drawn from."""
    entry = plan(root, dataset).entry
    runs = trained_runs(root, dataset)
    data_file = root / processed_file(dataset)
    splits = {name: load_split(data_file, name) for name in {run.config.split for run in runs}}
    rows: list[dict[str, Any]] = []
    with replacing_folder(root / evaluation_folder(dataset)) as folder:
        with h5py.File(folder / PREDICTIONS, "w") as file:
            for run in runs:
                config, data = run.config, splits[run.config.split]
                predictions = predict_run(config, run.folder, data)
                rows.append(_row(run, config, data, predictions))
                _write_predictions(file, config, data, predictions)
        (folder / RUNS).write_text(json.dumps(rows, indent=1), encoding="utf-8")
        (folder / DATASET).write_text(json.dumps(_sizes(data_file), indent=1), encoding="utf-8")
        pictured = _pictured(entry.kind, runs)
        if pictured:
            test = splits[pictured.config.split].test
            write_regions(folder / REGIONS, pictured.folder / SNAPSHOTS, pictured.folder, test)
    _write_plots(root / plots_folder(dataset), runs)
    target = root / metrics_file(dataset)
    with replacing(target) as aside:
        aside.write_text(json.dumps(summarise_methods(rows), indent=1) + "\n", encoding="utf-8")
    return target


def _row(
    run: StoredRun, config: RunConfig, data: SplitData, predictions: dict[str, np.ndarray]
) -> dict[str, Any]:
    """A run's figures; for MN also those of the same network before adaptation."""
    measure = accuracy if data.task == "classification" else mse
    name = "accuracy" if data.task == "classification" else "mse"
    truth = data.test.y.numpy()
    figures = {
        f"{name}{'' if kind == 'adapted' else '_before'}": measure(predicted, truth)
        for kind, predicted in predictions.items()
    }
    return {
        "run": config.name,
        "method": config.row,
        "split": config.split,
        "seed": config.seed,
        "key": run.key,
        **figures,
    }


def _sizes(data_file: Path) -> dict[str, Any]:
    """How large the data set is, so that a report on it needs the results alone."""
    described = describe(data_file)
    return {key: described[key] for key in ("shape", "splits")}


def _write_predictions(
    file: h5py.File, config: RunConfig, data: SplitData, predictions: dict[str, np.ndarray]
) -> None:
    group = file.create_group(config.name)
    group.create_dataset("truth", data=data.test.y.numpy())
    for kind, predicted in predictions.items():
        group.create_dataset(kind, data=predicted)


def _pictured(kind: str, runs: list[StoredRun]) -> StoredRun | None:
    """The run whose decision regions are drawn: the first MN run on points in the plane."""
    if kind != "points":
        return None
    return next((run for run in runs if run.config.dictionary and (run.folder / SNAPSHOTS).exists()), None)


def _write_plots(folder: Path, runs: list[StoredRun]) -> None:
    """Training curves for ``dvc plots``: mean over a method's runs, one row per (method, epoch)."""
    histories = [
        (run.config.row, json.loads((run.folder / HISTORY).read_text(encoding="utf-8")))
        for run in runs
        if (run.folder / HISTORY).exists()
    ]
    with replacing_folder(folder) as aside, (aside / "curves.csv").open("w", newline="") as file:
        rows = curve_rows(histories)
        writer = csv.DictWriter(file, fieldnames=list(rows[0]) if rows else ["method", "epoch"])
        writer.writeheader()
        writer.writerows(rows)
