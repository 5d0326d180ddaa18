"""Tests over data sets against values by hand and SciPy's own, and the diagram of their ranks."""

from __future__ import annotations

import math
from xml.etree import ElementTree as ET

import pytest
from scipy import stats

from mn.analysis.figures import ranking_diagram
from mn.analysis.ranking import Ranking, rank_methods, signed_rank

# By the order of the errors, worked out by hand: mean ranks 1.3, 1.9 and 2.8 over ten data sets.
ORDERS = [(1, 2, 3)] * 5 + [(2, 1, 3)] * 3 + [(1, 3, 2)] * 2


def by_method(orders: list[tuple[int, ...]]) -> dict[str, list[float]]:
    return {
        name: [float(order[i]) for order in orders]
        for i, name in enumerate(("mn", "vanilla", "knn", "hgb")[: len(orders[0])])
    }


def ranked(orders: list[tuple[int, ...]]) -> Ranking:
    ranking = rank_methods(by_method(orders))
    assert ranking is not None
    return ranking


def test_signed_rank_sums_the_ranks_of_log_ratios() -> None:
    logs = {"a": -0.3, "b": -0.2, "c": -0.1, "d": 0.4}
    test = signed_rank({key: math.exp(log) for key, log in logs.items()}, dict.fromkeys(logs, 1.0))
    assert test is not None
    # Ranks 3, 2 and 1 fell and 4 rose; 7 of the 16 subsets of {1, 2, 3, 4} have a sum of at most 4.
    assert (test.n, test.statistic) == (4, 4.0)
    assert test.p_value == pytest.approx(2 * 7 / 16)
    assert test.ratio == pytest.approx(math.exp(-0.15))


def test_signed_rank_does_not_depend_on_a_data_sets_scale() -> None:
    test = signed_rank({0: 0.9, 1: 0.8, 2: 1050.0, 3: 700.0}, {0: 1.0, 1: 1.0, 2: 1000.0, 3: 1000.0})
    assert test is not None
    assert test.statistic == 1.0, "5 % more is the smallest change, though 50 is not"


def test_signed_rank_leaves_pairs_without_a_difference_out() -> None:
    test = signed_rank({0: 1.0, 1: 0.5, 2: 0.4, 3: 0.3}, dict.fromkeys(range(4), 1.0))
    assert test is not None
    assert (test.n, test.p_value) == (4, pytest.approx(2 / 8))


def test_signed_rank_of_equal_methods_finds_nothing() -> None:
    test = signed_rank({0: 0.5, 1: 0.6}, {0: 0.5, 1: 0.6})
    assert test is not None
    assert (test.n, test.p_value, test.ratio) == (2, 1.0, 1.0)


def test_signed_rank_needs_a_shared_pair() -> None:
    assert signed_rank({0: 0.5}, {1: 0.5}) is None


def test_ranks_are_means_from_the_best_on() -> None:
    ranks = ranked([order[::-1] for order in ORDERS]).ranks
    assert list(ranks) == ["knn", "vanilla", "mn"]
    assert list(ranks.values()) == pytest.approx([1.3, 1.9, 2.8])


def test_equal_errors_share_their_ranks() -> None:
    assert ranked([(1, 1, 3), (1, 2, 3)]).ranks == {"mn": 1.25, "vanilla": 1.75, "knn": 3.0}


@pytest.mark.parametrize(("methods", "q"), [(2, 1.960), (3, 2.343), (5, 2.728), (10, 3.164)])
def test_critical_difference_has_the_constants_of_demsars_table_5(methods: int, q: float) -> None:
    ranking = rank_methods({f"m{i}": [float(i)] * 8 for i in range(methods)})
    assert ranking is not None
    assert ranking.cd == pytest.approx(q * math.sqrt(methods * (methods + 1) / (6 * 8)), rel=4e-4)


def test_friedman_of_one_order_throughout() -> None:
    ranking = ranked([(1, 2, 3)] * 4)
    assert ranking.statistic == pytest.approx(8.0), "N (k - 1)"
    assert ranking.p_value == pytest.approx(math.exp(-4)), "chi-squared with two degrees of freedom"


def test_friedman_with_ties_is_scipys() -> None:
    orders = [(1, 1, 3, 4), (2, 1, 2, 3), (1, 2, 3, 3), (2, 1, 4, 3)]
    expected = stats.friedmanchisquare(*by_method(orders).values())
    ranking = ranked(orders)
    assert (ranking.statistic, ranking.p_value) == pytest.approx((expected.statistic, expected.pvalue))


def test_methods_that_always_tie_do_not_differ() -> None:
    ranking = ranked([(1, 1, 1)] * 3)
    assert (ranking.statistic, ranking.p_value) == (0.0, 1.0)
    assert ranking.groups == [["mn", "vanilla", "knn"]]


def test_two_methods_are_ranked() -> None:
    assert ranked([(1, 2)] * 4).statistic == pytest.approx(4.0)


def test_groups_overlap_where_only_their_ends_are_separated() -> None:
    # CD = 2.343 sqrt(12 / 60) = 1.05, and the ranks are 1.3, 1.9 and 2.8.
    assert ranked(ORDERS).groups == [["mn", "vanilla"], ["vanilla", "knn"]]


def test_separated_methods_are_in_no_group() -> None:
    assert ranked([(1, 2, 3)] * 12).groups == []


@pytest.mark.parametrize("errors", [{"mn": [0.5], "vanilla": [0.6]}, {"mn": [0.5, 0.6]}, {}])
def test_one_data_set_or_one_method_has_no_ranks(errors: dict[str, list[float]]) -> None:
    assert rank_methods(errors) is None


def parse(drawing: str) -> ET.Element:
    return ET.fromstring(drawing)  # noqa: S314 our own drawing


def test_diagram_says_what_it_shows() -> None:
    said = parse(ranking_diagram(ranked(ORDERS))).attrib["aria-label"]
    assert "MN 1.30; vanilla 1.90; kNN 2.80. Critical difference 1.05 at level 0.05." in said
    assert said.endswith("not separated: MN, vanilla; vanilla, kNN.")


def test_diagram_has_a_row_per_method_and_a_bar_per_group() -> None:
    root = parse(ranking_diagram(ranked(ORDERS)))
    assert [group.attrib["class"] for group in root.iter("g")] == ["m-mn", "m-vanilla", "m-knn"]
    bars = [line for line in root.iter("line") if line.attrib["class"] == "joined"]
    assert len(bars) == 2
    assert float(bars[0].attrib["x1"]) < float(bars[1].attrib["x1"]) < float(bars[0].attrib["x2"])


def test_diagram_holds_a_critical_difference_longer_than_the_axis() -> None:
    ranking = ranked([(1, 2), (1, 2)])
    assert ranking.cd > 1
    width = float(parse(ranking_diagram(ranking)).attrib["viewBox"].split()[2])
    assert all(float(line.attrib["x2"]) <= width for line in parse(ranking_diagram(ranking)).iter("line"))


def test_diagram_escapes_names() -> None:
    ranking = rank_methods({"<b>": [1.0, 1.0], "mn": [2.0, 2.0]})
    assert ranking is not None
    assert "<b>" not in ranking_diagram(ranking)
