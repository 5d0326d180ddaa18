"""Test figures of one run, and their mean ± std over the runs of a method."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean, stdev

import numpy as np


def accuracy(predicted: np.ndarray, labels: np.ndarray) -> float:
    """The share of right labels, in %. Both ``(N,)``."""
    return float(100.0 * np.mean(predicted == labels))


def mse(predicted: np.ndarray, targets: np.ndarray) -> float:
    """Squared error averaged over rows and targets. Both ``(N, t)``."""
    return float(np.mean((predicted.astype(np.float64) - targets) ** 2))


def summarise(values: Sequence[float]) -> dict[str, float]:
    """Mean over runs, and the sample standard deviation where there is more than one."""
    summary = {"mean": fmean(values)}
    if len(values) > 1:
        summary["std"] = stdev(values)
    return summary


def summarise_methods(
    rows: Sequence[dict[str, float | str]],
) -> dict[str, dict[str, dict[str, float]]]:
    """From one row per run (``method`` and figures) to ``{method: {figure: {mean, std}}}``, in order."""
    methods = list(dict.fromkeys(str(row["method"]) for row in rows))
    return {
        method: {
            figure: summarise([float(row[figure]) for row in own])
            for figure in own[0]
            if isinstance(own[0][figure], float)
        }
        for method in methods
        for own in [[row for row in rows if row["method"] == method]]
    }
