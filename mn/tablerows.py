"""A table's rows before an estimator trains on them: weights, twins, validation rows, statistics."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

_LEAST_VALIDATION = 5  # rows; the loss on fewer says nothing
ROUNDING = 1e-12  # a standard deviation below this share of the mean is an error of rounding


class Rows(NamedTuple):
    """Rows to train or to validate on."""

    x: np.ndarray  # (n, d)
    y: np.ndarray  # (n, t) targets, or (n,) places in classes_
    weights: np.ndarray  # (n,) all above 0

    def at(self, index: np.ndarray) -> Rows:
        return Rows(self.x[index], self.y[index], self.weights[index])


def distinct(rows: Rows) -> tuple[Rows, np.ndarray]:
    """Each different row once, in an order that depends on the rows alone, and where it was first.

    A twin among the validation rows, or in the dictionary, would tell a row its own target. And a row of
    weight 2 is the same as two rows, which no order of batches could else give.
    """
    table = np.column_stack([rows.x, rows.y]) + 0.0  # -0 to 0
    _, first, inverse = np.unique(table, axis=0, return_index=True, return_inverse=True)
    weights = np.bincount(inverse.ravel(), rows.weights)
    if len(first) == 1:  # a dictionary needs two
        first, weights = np.repeat(first, 2), np.repeat(weights, 2)
    return Rows(rows.x[first], rows.y[first], weights), first


def hold_out(strata: np.ndarray, fraction: float, random: np.random.RandomState) -> np.ndarray:
    """Which rows ``(n,)`` to validate on: of all strata alike, but never the whole of one."""
    n = len(strata)
    order = random.permutation(n)
    order = order[np.argsort(strata[order], kind="stable")]
    in_order = strata[order]
    free = order[1:][in_order[1:] == in_order[:-1]]  # but one of each stratum
    count = min(round(fraction * n), len(free), n - 2)
    chosen = np.zeros(n, dtype=bool)
    if count >= _LEAST_VALIDATION:
        chosen[free[((np.arange(count) + 0.5) * len(free) / count).astype(int)]] = True
    return chosen


def statistics(name: str, rows: np.ndarray, weights: np.ndarray) -> tuple[Tensor, Tensor, Tensor]:
    """Mean and standard deviation of each column, and whether :mod:`mn.data.write` takes it for constant."""
    with np.errstate(over="ignore", invalid="ignore"):
        mean = np.average(rows, axis=0, weights=weights)
        std = np.sqrt(np.average((rows - mean) ** 2, axis=0, weights=weights))
    if not np.isfinite(std).all():
        column = int(np.flatnonzero(~np.isfinite(std))[0])
        raise ValueError(f"{name}: the values of column {column} are too large to standardise")
    constant = std <= ROUNDING * np.maximum(1.0, np.abs(mean))
    return torch.from_numpy(mean), torch.from_numpy(std), torch.from_numpy(constant)


def relative(weights: np.ndarray) -> Tensor | None:
    if (weights == weights[0]).all():
        return None
    return torch.from_numpy(weights / weights.mean()).float()
