"""Methods over several data sets: a signed-rank test of two, and the mean ranks of all of them.

After Demšar: Statistical Comparisons of Classifiers over Multiple Data Sets, JMLR 7, 2006. scipy.stats takes
seconds to import, and only a report on several data sets needs it.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np
from scipy.special import chdtrc

ALPHA = 0.05


@dataclass(frozen=True)
class SignedRank:
    """Wilcoxon's signed-rank test of two methods.

    Attributes:
        n: pairs, those without a difference included.
        statistic: the smaller of the sums of ranks of the pairs that rose and of those that fell.
        p_value: two-sided.
        ratio: the median of first / second over the pairs.
    """

    n: int
    statistic: float
    p_value: float
    ratio: float


def signed_rank(first: Mapping[Hashable, float], second: Mapping[Hashable, float]) -> SignedRank | None:
    r"""Wilcoxon's test over the keys, (data set, fold), that both have; None if they share none.

    .. math:: d_i = \log(e_i^{first} / e_i^{second}), \quad
        W = \min\bigl(\textstyle\sum_{d_i > 0} R_i, \sum_{d_i < 0} R_i\bigr),
        \quad R_i \text{ the rank of } |d_i|

    Errors of different data sets have different scales: ranks of plain differences would be ranks of data
    sets, and the one with the largest errors would decide. A ratio has no scale, and its logarithm counts
    halving as much as doubling. Pairs without a difference are left out of the ranks. Folds of one data set
    share training rows, so that p is smaller than independent runs would give.

    Args:
        first, second: errors above zero.
    """
    logs = [math.log(first[key] / second[key]) for key in first if key in second]
    if not logs:
        return None
    ratio = math.exp(median(logs))
    unequal = [value for value in logs if value]
    if not unequal:
        return SignedRank(len(logs), 0.0, 1.0, ratio)
    from scipy import stats

    test = stats.wilcoxon(unequal)
    return SignedRank(len(logs), float(test.statistic), float(test.pvalue), ratio)


@dataclass(frozen=True)
class Ranking:
    """Mean ranks of ``k`` methods over ``N`` data sets, best first, and which of them differ.

    Attributes:
        n: N.
        ranks: mean rank by method; 1 is the lowest error.
        statistic, p_value: Friedman's test that all methods are alike.
        cd: Nemenyi's critical difference at :data:`ALPHA`: mean ranks that differ by less are not separated.
        groups: the largest sets of methods, two or more, that are not separated; a method can be in several.
    """

    n: int
    ranks: dict[str, float]
    statistic: float
    p_value: float
    cd: float
    groups: list[list[str]]


def rank_methods(errors: Mapping[str, Sequence[float]]) -> Ranking | None:
    r"""Friedman's test and Nemenyi's critical difference; None for one data set or one method.

    With :math:`r_i^j` the rank of method j on data set i, equal errors sharing the mean of their ranks, and
    :math:`R_j = \frac1N \sum_i r_i^j`,

    .. math::
        \chi_F^2 = \frac{(k - 1) N^2 \sum_j (R_j - \frac{k+1}2)^2}{\sum_{ij} (r_i^j)^2 - N k (k+1)^2 / 4},
        \qquad
        CD = q_\alpha \sqrt{\frac{k (k+1)}{6 N}}

    where :math:`\chi_F^2` has k − 1 degrees of freedom (without ties it is Demšar's equation) and
    :math:`q_\alpha` is the studentized range's quantile of k means divided by :math:`\sqrt 2`.

    Args:
        errors: by method, its mean error on each data set ``(N,)``, all in the same order.
    """
    values = np.array(list(errors.values())).T  # (N, k)
    if values.ndim != 2 or min(values.shape) < 2:
        return None
    from scipy import stats

    n, k = values.shape
    ranked = stats.rankdata(values, axis=1)  # (N, k)
    means = ranked.mean(0)  # (k,)
    spread = float((ranked**2).sum()) - n * k * (k + 1) ** 2 / 4  # 0 where all methods tie on all data sets
    statistic = float((k - 1) * n**2 * ((means - (k + 1) / 2) ** 2).sum() / spread) if spread else 0.0
    cd = float(stats.studentized_range.ppf(1 - ALPHA, k, math.inf)) * math.sqrt(k * (k + 1) / (12 * n))
    ranks = dict(sorted(zip(errors, means.tolist(), strict=True), key=lambda pair: pair[1]))
    return Ranking(n, ranks, statistic, float(chdtrc(k - 1, statistic)), cd, _groups(ranks, cd))


def _groups(ranks: dict[str, float], cd: float) -> list[list[str]]:
    """For each method those from it on that are less than ``cd`` worse, unless a group has them already."""
    names, groups, reached = list(ranks), list[list[str]](), 0
    for start, name in enumerate(names):
        stop = sum(rank - ranks[name] < cd for rank in ranks.values())
        if stop > max(reached, start + 1):
            groups.append(names[start:stop])
            reached = stop
    return groups
