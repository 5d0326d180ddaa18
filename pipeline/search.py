"""Choosing settings by validation loss: rounds of candidates, each from the store or computed now.

A round is run on the first split (or, where that is cheap, on all) with the first seed; what it finds is
taken over by the rounds after it and by every run of the table. No figure of a test part decides anything.
But a fold's validation rows are test rows of other folds: that is the price of one choice for a data set
instead of one for each fold.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from mn.engine.config import Method, RunConfig
from mn.engine.fit import HISTORY
from mn.engine.runs import key_of
from mn.engine.store import RunStore, StoredRun
from pipeline.params import Found, Plan

SEARCH = "search.json"
Compute = Callable[[Sequence[RunConfig], str], list[StoredRun]]


def search(planned: Plan, compute: Compute) -> tuple[Found, list[dict[str, Any]]]:
    """What the rounds of a plan find, by method, and the table of all they tried.

    ``compute(configs, title)`` gives the finished runs in order.
    """
    found: dict[Method, dict[str, Any]] = {}
    table: list[dict[str, Any]] = []
    for number, stage in enumerate(planned.search, 1):
        candidates = planned.candidates(stage, found)
        title = f"search {number} of {len(planned.search)}, {stage.method}"
        runs = iter(compute([config for one in candidates for config in one.configs], title))
        tried = [_Tried(one.settings, [next(runs) for _ in one.configs]) for one in candidates]
        best = min(tried, key=lambda one: one.loss)
        if stage.apply:
            for method in (stage.method, *stage.also):
                found[method] = {**found.get(method, {}), **best.settings}
        table.append(
            {
                "method": stage.method,
                "also": stage.also,
                "splits": [config.split for config in candidates[0].configs],
                "seed": candidates[0].configs[0].seed,
                "applied": stage.apply,
                "candidates": [{**one.told, "chosen": one is best} for one in tried],
            }
        )
    return found, table


@dataclass(frozen=True)
class _Tried:
    """A candidate and its finished runs, one for each split."""

    settings: dict[str, Any]
    runs: list[StoredRun]

    @property
    def loss(self) -> float:
        return fmean(map(validation_loss, self.runs))

    @property
    def told(self) -> dict[str, Any]:
        """Its row of the table."""
        return {
            "settings": self.settings,
            "keys": [run.key for run in self.runs],
            "val_loss": self.loss,
            "epochs": fmean(len(_history(run)) for run in self.runs),
            "seconds": sum(run.record["seconds"] for run in self.runs),
        }


def named_runs(planned: Plan, data_sha256: str, store: RunStore) -> list[RunConfig]:
    """Every run that the parameters come to, as far as the store tells what the search finds."""
    named: list[RunConfig] = []

    def look_up(configs: Sequence[RunConfig], _: str) -> list[StoredRun]:
        named.extend(configs)
        runs = [store.finished(key_of(config, data_sha256)) for config in configs]
        finished = [run for run in runs if run is not None]
        if len(finished) < len(runs):
            raise _Unfinished
        return finished

    try:
        found, _ = search(planned, look_up)
    except _Unfinished:
        return named
    return named + planned.final(found)


class _Unfinished(Exception):
    """A round has runs that are still to be computed."""


def validation_loss(run: StoredRun) -> float:
    """That of the epoch whose weights the run kept."""
    assert run.config.training is not None
    losses = [row["val_loss"] for row in _history(run)]
    return min(losses) if run.config.training.keep == "best" else losses[-1]


def _history(run: StoredRun) -> list[dict[str, float]]:
    rows: list[dict[str, float]] = json.loads((run.folder / HISTORY).read_text(encoding="utf-8"))
    return rows
