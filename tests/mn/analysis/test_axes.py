"""Axes: where numbers land and which ticks are drawn."""

from __future__ import annotations

import pytest

from mn.analysis.figures.axes import Axis, tick_text, y_axis


@pytest.mark.parametrize(
    ("low", "high", "log", "ticks"),
    [
        (0, 100, False, [0, 20, 40, 60, 80, 100]),
        (0.47, 0.64, False, [0.5, 0.55, 0.6]),
        (-1, 1, False, [-1, -0.5, 0, 0.5, 1]),
        (4e-4, 12, True, [1e-3, 1e-2, 1e-1, 1, 10]),
        (0.002, 0.6, True, [0.003, 0.01, 0.03, 0.1, 0.3]),
        (1, 4, True, [1, 2]),
        (1e-9, 1e9, True, [1e-9, 1e-5, 1e-1, 1e3, 1e7]),
    ],
)
def test_ticks_are_round_and_few(low: float, high: float, log: bool, ticks: list[float]) -> None:
    assert Axis(low, high, 0, 1, log).ticks() == pytest.approx(ticks)


def test_ends_land_on_ends() -> None:
    for log in (False, True):
        axis = Axis(0.1, 10, 200, 20, log)
        assert (axis.place(0.1), axis.place(10)) == (200, 20)
    assert Axis(0.1, 10, 0, 2, log=True).place(1) == pytest.approx(1)


def test_scale_follows_the_values() -> None:
    assert y_axis([0.001, 1.0]).log
    assert not y_axis([0.0, 1.0]).log, "zero has no logarithm"
    assert not y_axis([20.0, 100.0]).log
    assert y_axis([0.0, 10.0]).low == 0, "nothing below zero where nothing is negative"


@pytest.mark.parametrize("values", [[0.0], [3.0, 3.0], [-2.0]])
def test_equal_values_still_have_an_axis(values: list[float]) -> None:
    axis = y_axis(values)
    assert axis.low <= min(values) < axis.high
    assert axis.ticks()


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (0, "0"),
        (0.05, "0.05"),
        (-1.5, "−1.5"),
        (1000, "1,000"),
        (1e-4, "10⁻⁴"),
        (5e-4, "5·10⁻⁴"),
        (2e6, "2·10⁶"),
    ],
)
def test_ticks_are_written_short(value: float, written: str) -> None:
    assert tick_text(value) == written
