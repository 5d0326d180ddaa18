"""Regression over several data sets, as in the paper's Table 2: one table, what it says, and ranks."""

from __future__ import annotations

from collections.abc import Hashable

from mn.analysis.compare import paired_difference
from mn.analysis.figures import family, label
from mn.analysis.ranking import ALPHA, Ranking, rank_methods, signed_rank
from pipeline.report.findings import best_methods, decimals, p_text
from pipeline.report.paper import Paper
from pipeline.report.results import Results
from pipeline.report.tables import Row, Table
from pipeline.report.words import NBSP, count, listing, mean_std, three_figures

_NOT_IN_THE_PAPER = ("hgb", "tabm")


def regression_table(results: list[Results], paper: Paper) -> Table:
    """Data sets × methods, p of MN − vanilla, and the paper's figures where it prints any."""
    methods = list(dict.fromkeys(method for result in results for method in result.methods))
    printed = {result.entry.name: paper.figures(result.entry.name, None) for result in results}
    of_paper = [method for method in methods if any(method in own for own in printed.values())]
    table = Table(
        "Test MSE by data set, mean ± sample standard deviation over runs, and p of MN − vanilla",
        [*map(_column, methods), "p", *(f"{label(method)}, paper" for method in of_paper)],
    )
    for result in results:
        places = decimals(result)
        ours = {method: mean_std(own[result.figure], places) for method, own in result.metrics.items()}
        theirs = {
            method: mean_std({"mean": mean, "std": std}, places)
            for method, (mean, std) in printed[result.entry.name].items()
        }
        difference = paired_difference(result.values("mn"), result.values("vanilla"))
        best = best_methods(result) if len(ours) > 1 else []
        table.rows.append(
            Row(
                head=result.entry.name,
                cells=[
                    *(ours.get(method, "–") for method in methods),
                    p_text(difference.p_value) if difference else "–",
                    *(theirs.get(method, "–") for method in of_paper),
                ],
                best_cells=tuple(map(methods.index, best)),
            )
        )
    return table


def regression_finding(results: list[Results]) -> str:
    """MN against vanilla and kNN over the data sets that have both; empty where none has."""
    found = [paired_difference(result.values("mn"), result.values("vanilla")) for result in results]
    differences = [difference for difference in found if difference]
    test = signed_rank(_over_all(results, "mn"), _over_all(results, "vanilla"))
    if test is None:
        return ""
    below = [difference for difference in differences if difference.mean < 0]
    clear = [d.mean < 0 for d in differences if d.p_value is not None and d.p_value < ALPHA]
    return (
        f"MN’s mean test MSE is below vanilla’s on {len(below)} of {_sets(len(differences))}: with "
        f"p < {ALPHA:g} (paired t-test over the runs of a data set) below on {clear.count(True)} and above "
        f"on {clear.count(False)}. {_against_knn(results)}Over all {count(test.n, 'pair')} of runs, MN’s MSE "
        f"divided by vanilla’s has the median {three_figures(test.ratio)}; Wilcoxon’s signed-rank test of "
        f"these ratios’ logarithms gives {_p(test.p_value)}. Folds of a data set share training rows, and no "
        "test is corrected for the number of tests: they are a guide and no proof."
    )


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


def _against_knn(results: list[Results]) -> str:
    pairs = [
        (result.metrics["mn"][result.figure]["mean"], result.metrics["knn"][result.figure]["mean"])
        for result in results
        if {"mn", "knn"} <= set(result.methods)
    ]
    if not pairs:
        return ""
    return f"It is below kNN’s on {sum(mn < knn for mn, knn in pairs)} of {_sets(len(pairs))}. "


def _over_all(results: list[Results], method: str) -> dict[Hashable, float]:
    return {
        (result.entry.name, pair): value
        for result in results
        for pair, value in result.values(method).items()
    }


def _p(p_value: float) -> str:
    """``p = 0.013``, ``p < 0.001``."""
    shown = p_text(p_value)
    return f"p{NBSP}{shown}" if shown.startswith("<") else f"p{NBSP}={NBSP}{shown}"


def _sets(number: int) -> str:
    return count(number, "data set")
