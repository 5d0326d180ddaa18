"""Gradient boosting of histograms (scikit-learn), its settings chosen on the validation part.

Not in the paper: what a user with a table would try first today.
"""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.ensemble import HistGradientBoostingRegressor

from mn.data.feed import as_arrays
from mn.data.split import Part, SplitData
from mn.engine.config import RunConfig
from mn.engine.interrupt import Interrupted, StopRequest

CHOICE = "choice.json"
_PATIENCE = 20  # trees without a better validation loss before growing stops


def choose(config: RunConfig, data: SplitData, output: Path, stop: StopRequest) -> None:
    """Score every (rate, leaves, number of trees) on the validation part; write down the table and the best.

    One model for each target, all with the same rate and leaves.
    """
    assert config.boosting is not None
    table: list[dict[str, Any]] = []
    for rate, leaves in itertools.product(config.boosting.rates, config.boosting.leaves):
        if stop.made:
            raise Interrupted(f"{config.name} was stopped")
        settings = {"learning_rate": rate, "max_leaf_nodes": leaves, "random_state": config.seed}
        losses = [
            _losses(data, target, config.boosting.trees, settings) for target in range(data.num_targets)
        ]
        trees = [int(loss.argmin()) + 1 for loss in losses]
        table.append(
            {
                "rate": rate,
                "leaves": leaves,
                "trees": trees,
                "val_loss": float(np.mean([loss.min() for loss in losses])),
            }
        )
    best = min(table, key=lambda row: row["val_loss"])
    choice = {**{key: best[key] for key in ("rate", "leaves", "trees")}, "candidates": table}
    (output / CHOICE).write_text(json.dumps(choice, indent=1), encoding="utf-8")


def predict(config: RunConfig, folder: Path, data: SplitData, part: Part) -> np.ndarray:
    """Predictions of a finished run for a part: targets ``(B, t)``. The trees are grown again."""
    choice = json.loads((folder / CHOICE).read_text(encoding="utf-8"))
    x, y = as_arrays(data.train)
    columns = []
    for target, trees in enumerate(choice["trees"]):
        model = HistGradientBoostingRegressor(
            max_iter=trees,
            early_stopping=False,
            learning_rate=choice["rate"],
            max_leaf_nodes=choice["leaves"],
            random_state=config.seed,
        )
        columns.append(model.fit(x, y[:, target]).predict(as_arrays(part)[0]))
    return np.stack(columns, axis=1)


def _losses(data: SplitData, target: int, trees: int, settings: dict[str, Any]) -> np.ndarray:
    """The validation loss after each tree."""
    x, y = as_arrays(data.train)
    x_val, y_val = as_arrays(data.validation)
    model = HistGradientBoostingRegressor(
        max_iter=trees, early_stopping=True, n_iter_no_change=_PATIENCE, **settings
    )
    model.fit(x, y[:, target], X_val=x_val, y_val=y_val[:, target])
    return np.array([np.mean((stage - y_val[:, target]) ** 2) for stage in model.staged_predict(x_val)])
