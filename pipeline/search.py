"""Choosing settings by validation loss: rounds of candidates, each from the store or computed now.

A round is run on the first split and seed; what it finds is taken over by the rounds after it and by every
run of the table. The test part of that split decides nothing. With folds, its validation rows are test rows
of others: that is the price of one choice for a data set instead of one for each fold.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
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
        runs = compute([candidate.config for candidate in candidates], title)
        losses = [validation_loss(run) for run in runs]
        best = losses.index(min(losses))
        if stage.apply:
            for method in (stage.method, *stage.also):
                found[method] = {**found.get(method, {}), **candidates[best].settings}
        first = candidates[0].config
        table.append(
            {
                "method": stage.method,
                "also": stage.also,
                "split": first.split,
                "seed": first.seed,
                "applied": stage.apply,
                "candidates": [
                    {
                        "settings": candidate.settings,
                        "key": run.key,
                        "val_loss": loss,
                        "epochs": len(_history(run)),
                        "seconds": run.record["seconds"],
                        "chosen": place == best,
                    }
                    for place, (candidate, run, loss) in enumerate(zip(candidates, runs, losses, strict=True))
                ],
            }
        )
    return found, table


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
