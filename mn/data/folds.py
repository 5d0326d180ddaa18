"""Which rows train, validate and test: every split is three sets of row numbers.

They are disjoint, but for :func:`everything`, whose name says what it tests on.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from sklearn.model_selection import GroupKFold, KFold, train_test_split


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


def grouped_kfold(groups: np.ndarray, *, folds: int, validation: float, seed: int) -> list[Split]:
    """As :func:`kfold`, but rows of one group (a patient) are all in the same part, in every split."""
    splits = []
    turns = GroupKFold(folds, shuffle=True, random_state=seed).split(groups, groups=groups)
    for rest, test_rows in turns:
        # A share of the rest's groups, not of its rows: the size then differs a little from fold to fold.
        names = np.unique(groups[rest])
        _, chosen = train_test_split(names, test_size=validation, random_state=seed)
        held = np.isin(groups[rest], chosen)
        splits.append(_sorted(rest[~held], rest[held], test_rows))
    return splits


def published(part: np.ndarray, labels: np.ndarray | None, *, validation: float | None, seed: int) -> Split:
    """The parts the authors published (0 train, 1 validation, 2 test).

    ``validation`` takes a share of the training rows instead of a published validation part, each class in
    proportion if there are labels.
    """
    train_rows, validation_rows, test_rows = (np.flatnonzero(part == i) for i in range(3))
    if validation is not None:
        count = round(validation * len(train_rows))
        stratify = None if labels is None else labels[train_rows]
        train_rows, validation_rows = train_test_split(
            train_rows, test_size=count, stratify=stratify, random_state=seed
        )
    return _sorted(train_rows, validation_rows, test_rows)


def everything(labels: np.ndarray, *, validation: float, seed: int) -> Split:
    """Tested on all rows, those trained on included: a protocol to compare with, not to believe."""
    rows = np.arange(len(labels))
    count = round(validation * len(rows))
    train_rows, validation_rows = train_test_split(rows, test_size=count, stratify=labels, random_state=seed)
    return _sorted(train_rows, validation_rows, rows)


def _sorted(*parts: np.ndarray) -> Split:
    train, validation, test = (np.sort(part).astype(np.int64) for part in parts)
    return Split(train, validation, test)
