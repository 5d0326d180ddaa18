"""Every run's figures and every candidate of the searches, for programs to read."""

from __future__ import annotations

from typing import Any

from pipeline.report.results import Results, Run
from pipeline.report.tables import surroundings


def as_data(results: list[Results]) -> dict[str, Any]:
    """What the runs were computed with, and by data set its size, its runs and its search, as plain data."""
    return {
        "computed_with": surroundings(results),
        "datasets": {result.entry.name: _dataset(result) for result in results},
    }


def _dataset(result: Results) -> dict[str, Any]:
    return {
        "rows": result.shape[0],
        "inputs": list(result.shape[1:]),
        "splits": result.splits,
        "runs": [_run(run) for run in result.runs],
        "search": result.search,
    }


def _run(run: Run) -> dict[str, Any]:
    return {
        "method": run.config.row,
        "split": run.config.split,
        "seed": run.config.seed,
        **run.figures,
        **({"epochs": len(run.history)} if run.history else {}),
        "seconds": run.record["seconds"],
        "finished": run.record["finished"],
        "key": run.key,
    }
