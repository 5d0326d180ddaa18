"""Training curves: the histories of a method's runs as one."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

History = list[dict[str, float]]


def curve_rows(histories: Sequence[tuple[str, History]]) -> list[dict[str, float | str]]:
    """One row per (method, epoch) with every figure's mean over the runs that reached that epoch.

    Runs that stopped early leave the mean at the epochs after; a figure that a method does not have
    (``alpha`` for vanilla) is left out of its rows and empty in a table.
    """
    methods = list(dict.fromkeys(method for method, _ in histories))
    figures = list(dict.fromkeys(key for _, history in histories for row in history for key in row))
    rows: list[dict[str, float | str]] = []
    for method in methods:
        own = [history for name, history in histories if name == method]
        for epoch in range(max(len(history) for history in own)):
            at = [history[epoch] for history in own if epoch < len(history)]
            row: dict[str, float | str] = {"method": method, "epoch": epoch + 1}
            for key in figures:
                if key != "epoch":
                    row[key] = fmean(r[key] for r in at) if key in at[0] else ""
            rows.append(row)
    return rows
