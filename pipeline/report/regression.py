"""Regression over several data sets, as in the paper's Table 2: one table, what it says, and ranks."""

from __future__ import annotations

from collections.abc import Hashable

from mn.analysis.figures import family, label
from mn.analysis.ranking import ALPHA, Ranking, rank_methods, signed_rank
from pipeline.report.findings import best_methods, compare, decimals, p_text, with_and_without
from pipeline.report.paper import Paper
from pipeline.report.results import Results
from pipeline.report.tables import Row, Table
from pipeline.report.words import NBSP, count, listing, mean_std, three_figures

_NOT_IN_THE_PAPER = ("hgb", "tabm")


def regression_table(results: list[Results], paper: Paper) -> Table:
    """Data sets × methods, p of every row with a dictionary against the one without, the paper's figures."""
    methods = list(dict.fromkeys(method for result in results for method in result.methods))
    pairs = _pairs(results)
    printed = {result.entry.name: paper.figures(result.entry.name, None) for result in results}
    of_paper = [method for method in methods if any(method in own for own in printed.values())]
    table = Table(
        "Test MSE by data set, mean ± sample standard deviation over runs, and p of MN − vanilla",
        [
            *map(_column, methods),
            *(f"p{label(first).removeprefix(label('mn'))}" for first, _ in pairs),
            *(f"{label(method)}, paper" for method in of_paper),
        ],
    )
    for result in results:
        places = decimals(result)
        ours = {method: mean_std(own[result.figure], places) for method, own in result.metrics.items()}
        theirs = {
            method: mean_std({"mean": mean, "std": std}, places)
            for method, (mean, std) in printed[result.entry.name].items()
        }
        found = [compare(result, first, second) for first, second in pairs]
        best = best_methods(result) if len(ours) > 1 else []
        table.rows.append(
            Row(
                head=result.entry.name,
                cells=[
                    *(ours.get(method, "–") for method in methods),
                    *(p_text(difference.p_value) if difference else "–" for difference in found),
                    *(theirs.get(method, "–") for method in of_paper),
                ],
                best_cells=tuple(map(methods.index, best)),
            )
        )
    return table


def regression_finding(results: list[Results]) -> str:
    """Each row with a dictionary against the one without, over the data sets that have both, and kNN."""
    found = " ".join(_finding(results, first, second) for first, second in _pairs(results))
    caution = "Folds of a data set share training rows, and no test is corrected for the number of tests: "
    return f"{found} {caution}they are a guide and no proof." if found else ""


def _finding(results: list[Results], first: str, second: str) -> str:
    compared = [compare(result, first, second) for result in results]
    differences = [difference for difference in compared if difference]
    test = signed_rank(_over_all(results, first), _over_all(results, second))
    assert test is not None  # both were run on one of the data sets
    below = [difference for difference in differences if difference.mean < 0]
    clear = [d.mean < 0 for d in differences if d.p_value is not None and d.p_value < ALPHA]
    return (
        f"{label(first)}’s mean test MSE is below {label(second)}’s on {len(below)} of "
        f"{_sets(len(differences))}: with p < {ALPHA:g} (paired t-test over the folds or seeds of a data "
        f"set) below on {clear.count(True)} and above on {clear.count(False)}. "
        f"{_against_knn(results, first)}Over all {count(test.n, 'pair')}, {label(first)}’s MSE divided by "
        f"{label(second)}’s has the median {three_figures(test.ratio)}; Wilcoxon’s signed-rank test of these "
        f"ratios’ logarithms gives {_p(test.p_value)}."
    )


def _pairs(results: list[Results]) -> list[tuple[str, str]]:
    return list(dict.fromkeys(pair for result in results for pair in with_and_without(result)))


def regression_ranking(results: list[Results]) -> Ranking | None:
    """Ranks of the methods that every data set has, by their mean over its runs."""
    shared = [method for method in results[0].methods if all(method in result.metrics for result in results)]
    return rank_methods({m: [result.metrics[m][result.figure]["mean"] for result in results] for m in shared})


def ranking_caption(ranking: Ranking) -> str:
    return (
        f"Methods that all {_sets(ranking.n)} have, ranked on each by mean test MSE. Friedman’s test that "
        f"they rank alike: χ² = {three_figures(ranking.statistic)}, {_p(ranking.p_value)}. A bar joins "
        f"methods whose mean ranks differ by less than Nemenyi’s critical difference (CD) at {ALPHA:g}: so "
        "few data sets do not separate them (Demšar, 2006)."
    )


def regression_notes(results: list[Results]) -> list[str]:
    """What a reader has to know to set the figures beside others."""
    notes = []
    if any(result.entry.name == "gom" for result in results):
        notes.append(
            "gom has two targets: its MSE is the mean over both. The paper does not state its choice."
        )
    searched = [r.entry.name for r in results if any(stage["applied"] for stage in r.search)]
    if searched:
        notes.append(
            f"The settings of {listing(searched)} were chosen per data set, by the validation loss on its "
            "first fold, or the mean of all folds’, and never by test figures. Validation rows of one fold "
            "are test or training rows of others."
        )
    return notes


def _column(method: str) -> str:
    return label(method) + (" (not in the paper)" if family(method) in _NOT_IN_THE_PAPER else "")


def _against_knn(results: list[Results], method: str) -> str:
    pairs = [
        (result.metrics[method][result.figure]["mean"], result.metrics["knn"][result.figure]["mean"])
        for result in results
        if {method, "knn"} <= set(result.methods)
    ]
    if not pairs:
        return ""
    return f"It is below kNN’s on {sum(own < knn for own, knn in pairs)} of {_sets(len(pairs))}. "


def _over_all(results: list[Results], method: str) -> dict[Hashable, float]:
    return {
        (result.entry.name, pair): value
        for result in results
        for pair, value in result.compared(method).items()
    }


def _p(p_value: float) -> str:
    """``p = 0.013``, ``p < 0.001``."""
    shown = p_text(p_value)
    return f"p{NBSP}{shown}" if shown.startswith("<") else f"p{NBSP}={NBSP}{shown}"


def _sets(number: int) -> str:
    return count(number, "data set")
