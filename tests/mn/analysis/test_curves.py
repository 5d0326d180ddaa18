"""A method's histories as one table."""

from __future__ import annotations

from mn.analysis.curves import curve_rows


def test_rows_are_means_over_the_runs_that_got_there() -> None:
    histories = [
        ("vanilla", [{"epoch": 1, "val_loss": 2.0}]),
        ("mn", [{"epoch": 1, "val_loss": 1.0, "alpha": 0.1}, {"epoch": 2, "val_loss": 0.5, "alpha": 0.2}]),
        ("mn", [{"epoch": 1, "val_loss": 3.0, "alpha": 0.3}]),
    ]
    assert curve_rows(histories) == [
        {"method": "vanilla", "epoch": 1, "val_loss": 2.0, "alpha": ""},
        {"method": "mn", "epoch": 1, "val_loss": 2.0, "alpha": 0.2},
        {"method": "mn", "epoch": 2, "val_loss": 0.5, "alpha": 0.2},
    ]


def test_no_histories_no_rows() -> None:
    assert curve_rows([]) == []
