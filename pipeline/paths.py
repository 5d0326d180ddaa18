"""Where everything lies, relative to the project's root."""

from __future__ import annotations

import os
from pathlib import Path

REPORT = Path("report")


def raw_folder(dataset: str) -> Path:
    return Path("data/raw") / dataset


def processed_file(dataset: str) -> Path:
    return Path("data/processed") / f"{dataset}.h5"


def results_folder(dataset: str) -> Path:
    return Path("results") / dataset


def train_folder(dataset: str) -> Path:
    return results_folder(dataset) / "train"


def metrics_file(dataset: str) -> Path:
    return results_folder(dataset) / "metrics.json"


def evaluation_folder(dataset: str) -> Path:
    return results_folder(dataset) / "evaluation"


def plots_folder(dataset: str) -> Path:
    return results_folder(dataset) / "plots"


def dictionary_folder(dataset: str) -> Path:
    return results_folder(dataset) / "dictionary"


def live_folder(dataset: str) -> Path:
    """Not below ``results``, which the report depends on: the curves change while it is up to date."""
    return Path("live") / dataset


def store_folder(root: Path) -> Path:
    """``.mn`` in the project, or what the environment variable ``MN_STORE`` names.

    DVC runs a queued experiment in a copy of the project below ``.dvc/tmp/exps``; it shares the store of
    the project it was queued in, so that an experiment computes only what is new in it.
    """
    chosen = os.environ.get("MN_STORE")
    if chosen:
        return Path(chosen)
    for folder in root.resolve().parents:
        if folder.name == "exps" and folder.parent.name == "tmp" and folder.parents[1].name == ".dvc":
            return folder.parents[2] / ".mn"
    return root / ".mn"
