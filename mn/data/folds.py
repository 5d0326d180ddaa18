"""Which rows train, validate and test: every split is three disjoint sets of row numbers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from sklearn.model_selection import KFold, train_test_split


@dataclass(frozen=True)
class Split:
    """Sorted row numbers of the three parts, each ``(n,)`` int64."""

    train: np.ndarray
    validation: np.ndarray
    test: np.ndarray


def holdout(labels: np.ndarray, *, validation: float, test: float, seed: int) -> Split:
    """One split with each class in the same proportion in all parts. Shares are of all rows."""
    rows = np.arange(len(labels))
    rest, test_rows = train_test_split(rows, test_size=test, stratify=labels, random_state=seed)
    train_rows, validation_rows = train_test_split(
        rest, test_size=validation / (1 - test), stratify=labels[rest], random_state=seed
    )
    return _sorted(train_rows, validation_rows, test_rows)


def kfold(count: int, *, folds: int, validation: float, seed: int) -> list[Split]:
    """``folds`` splits whose test parts cover every row once; validation is a share of the other rows."""
    splits = []
    for rest, test_rows in KFold(folds, shuffle=True, random_state=seed).split(np.arange(count)):
        train_rows, validation_rows = train_test_split(rest, test_size=validation, random_state=seed)
        splits.append(_sorted(train_rows, validation_rows, test_rows))
    return splits


def _sorted(*parts: np.ndarray) -> Split:
    train, validation, test = (np.sort(part).astype(np.int64) for part in parts)
    return Split(train, validation, test)
