"""Figures of a run and of a method."""

from __future__ import annotations

import numpy as np
import pytest

from mn.analysis.metrics import accuracy, mse, summarise, summarise_methods


def test_accuracy_is_in_percent() -> None:
    assert accuracy(np.array([0, 1, 1, 2]), np.array([0, 1, 2, 2])) == 75.0


def test_mse_averages_over_rows_and_targets() -> None:
    assert mse(np.array([[0.0, 1.0], [2.0, 3.0]]), np.array([[0.0, 0.0], [0.0, 3.0]])) == 1.25


def test_spread_is_the_sample_standard_deviation() -> None:
    summary = summarise([1.0, 2.0, 4.0])
    assert summary == pytest.approx({"mean": np.mean([1, 2, 4]), "std": np.std([1, 2, 4], ddof=1)})
    assert summarise([1.0]) == {"mean": 1.0}


def test_methods_keep_their_order_and_their_own_figures() -> None:
    rows: list[dict[str, float | str]] = [
        {"method": "vanilla", "run": "a", "mse": 1.0},
        {"method": "mn", "run": "b", "mse": 2.0, "mse_before": 3.0},
        {"method": "vanilla", "run": "c", "mse": 3.0},
    ]
    summary = summarise_methods(rows)
    assert list(summary) == ["vanilla", "mn"]
    assert summary["vanilla"]["mse"] == {"mean": 2.0, "std": pytest.approx(2**0.5)}
    assert summary["mn"] == {"mse": {"mean": 2.0}, "mse_before": {"mean": 3.0}}
