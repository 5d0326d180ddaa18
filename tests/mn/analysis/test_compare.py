"""Paired differences against SciPy's own paired test, and where they must say nothing."""

from __future__ import annotations

import pytest
from scipy import stats

from mn.analysis.compare import PairedDifference, paired_difference


def test_interval_is_that_of_the_paired_t_test() -> None:
    first, second = [0.61, 0.54, 0.47, 0.60, 0.55], [0.58, 0.55, 0.52, 0.61, 0.53]
    difference = paired_difference(dict(enumerate(first)), dict(enumerate(second)))
    assert difference is not None
    expected = stats.ttest_rel(first, second).confidence_interval(0.95)
    assert difference.interval == pytest.approx((expected.low, expected.high))
    assert difference.sign == 0


def test_p_value_is_that_of_the_paired_t_test() -> None:
    first, second = [0.61, 0.54, 0.47, 0.60, 0.55], [0.62, 0.58, 0.52, 0.61, 0.53]
    difference = paired_difference(dict(enumerate(first)), dict(enumerate(second)))
    assert difference is not None
    assert difference.p_value == pytest.approx(stats.ttest_rel(first, second).pvalue)


@pytest.mark.parametrize(
    ("differences", "p_value"), [([0.5], None), ([0.0, 0.0], 1.0), ([0.5, 0.5], 0.0), ([-0.5, -0.5], 0.0)]
)
def test_p_value_without_spread(differences: list[float], p_value: float | None) -> None:
    assert PairedDifference(differences).p_value == p_value


@pytest.mark.parametrize(("shift", "sign"), [(1.0, 1), (-1.0, -1)])
def test_sign_is_that_of_a_clear_difference(shift: float, sign: int) -> None:
    assert PairedDifference([shift + noise for noise in (-0.1, 0.0, 0.1)]).sign == sign


def test_only_runs_that_share_their_key_are_compared() -> None:
    difference = paired_difference({"a": 3.0, "b": 5.0}, {"b": 4.0, "c": 0.0})
    assert difference is not None
    assert (difference.n, difference.mean) == (1, 1.0)
    assert paired_difference({"a": 1.0}, {"b": 1.0}) is None


def test_a_single_pair_has_no_spread() -> None:
    difference = PairedDifference([2.0])
    assert (difference.std, difference.interval, difference.sign) == (None, None, 0)


def test_equal_runs_are_no_difference() -> None:
    assert PairedDifference([0.0, 0.0, 0.0]).sign == 0
