"""k-nearest-neighbours, with k and the weighting chosen on the validation part."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.neighbors import KNeighborsClassifier, KNeighborsRegressor

from mn.data.feed import as_arrays
from mn.data.split import Part, SplitData
from mn.engine.config import RunConfig
from mn.engine.interrupt import StopRequest

CHOICE = "choice.json"
WEIGHTINGS = ("uniform", "distance")


def choose(config: RunConfig, data: SplitData, output: Path, _: StopRequest) -> None:
    """Score every (k, weighting) on the validation part and write down the table and the best."""
    assert config.neighbours is not None
    x, y = as_arrays(data.validation)
    table: list[dict[str, Any]] = [
        {"k": k, "weighting": weighting, "val_loss": _loss(fitted.predict, x, y)}
        for k in config.neighbours.k
        if k <= len(data.train)
        for weighting in WEIGHTINGS
        for fitted in [fit_knn(data, k=k, weighting=weighting)]
    ]
    best = min(table, key=lambda row: row["val_loss"])
    choice = {"k": best["k"], "weighting": best["weighting"], "candidates": table}
    (output / CHOICE).write_text(json.dumps(choice, indent=1), encoding="utf-8")


def fit_knn(data: SplitData, *, k: int, weighting: str) -> Any:
    """k-nearest-neighbours on the training part."""
    kind = KNeighborsClassifier if data.task == "classification" else KNeighborsRegressor
    return kind(n_neighbors=k, weights=weighting).fit(*as_arrays(data.train))


def predict(_: RunConfig, folder: Path, data: SplitData, part: Part) -> np.ndarray:
    """Predictions of a finished run for a part: labels ``(B,)`` or targets ``(B, t)``."""
    choice = json.loads((folder / CHOICE).read_text(encoding="utf-8"))
    fitted = fit_knn(data, k=choice["k"], weighting=choice["weighting"])
    return np.asarray(fitted.predict(as_arrays(part)[0]))


def _loss(predict: Callable[[np.ndarray], np.ndarray], x: np.ndarray, y: np.ndarray) -> float:
    """The share of wrong labels, or the mean squared error."""
    predicted = predict(x)
    if y.dtype == np.int64:
        return float(np.mean(predicted != y))
    return float(np.mean((predicted - y) ** 2))
