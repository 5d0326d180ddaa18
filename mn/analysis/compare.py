"""Two methods on the same folds or seeds: what their differences say, pair by pair."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

from scipy.special import stdtr, stdtrit


@dataclass(frozen=True)
class PairedDifference:
    """Differences of figures that share the fold, or the seed, in order."""

    differences: Sequence[float]

    @property
    def n(self) -> int:
        return len(self.differences)

    @property
    def mean(self) -> float:
        return fmean(self.differences)

    @property
    def std(self) -> float | None:
        """The sample standard deviation; None for a single pair."""
        return stdev(self.differences) if self.n > 1 else None

    @property
    def interval(self) -> tuple[float, float] | None:
        """The mean's 95 % interval by Student's t; None for a single pair."""
        if self.std is None:
            return None
        margin = float(stdtrit(self.n - 1, 0.975)) * self.std / math.sqrt(self.n)
        return self.mean - margin, self.mean + margin

    @property
    def p_value(self) -> float | None:
        """Two-sided, of the paired t-test: ``scipy.stats.ttest_rel``'s. None for a single pair.

        Differences that are all the same have no spread: 1 where they are zero, else 0, the limit of a
        spread that goes to zero.
        """
        if self.std is None:
            return None
        if self.std == 0:
            return 0.0 if self.mean else 1.0
        return 2 * float(stdtr(self.n - 1, -abs(self.mean) / self.std * math.sqrt(self.n)))

    @property
    def sign(self) -> int:
        """1 or -1 where the interval lies on one side of zero, else 0: no clear difference."""
        if self.interval is None or self.interval[0] <= 0 <= self.interval[1]:
            return 0
        return 1 if self.mean > 0 else -1


def paired_difference(
    first: Mapping[Hashable, float], second: Mapping[Hashable, float]
) -> PairedDifference | None:
    """``first − second`` over the keys that both have; None if they share none."""
    shared = [key for key in first if key in second]
    return PairedDifference([first[key] - second[key] for key in shared]) if shared else None
