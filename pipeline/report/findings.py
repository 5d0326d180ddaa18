"""What the numbers say, in sentences that are computed from them: also where MN is not the better one."""

from __future__ import annotations

from mn.analysis.compare import PairedDifference, paired_difference
from mn.analysis.figures import label
from pipeline.report.results import Results
from pipeline.report.words import NBSP, count, fixed, listing, mean_std

_ALIKE = "the same in every pair"


def decimals(result: Results) -> int:
    """Accuracy in % has two, a mean squared error four, or six where it is tiny."""
    if result.figure == "accuracy":
        return 2
    return 4 if min(m[result.figure]["mean"] for m in result.metrics.values()) >= 0.01 else 6


def unit(result: Results) -> str:
    return f"{NBSP}%" if result.figure == "accuracy" else ""


def best_methods(result: Results) -> list[str]:
    """Those with the best mean of the main figure: more than one only if they are equal."""
    means = {method: figures[result.figure]["mean"] for method, figures in result.metrics.items()}
    best = max(means.values()) if result.figure == "accuracy" else min(means.values())
    return [method for method, mean in means.items() if mean == best]


def with_and_without(result: Results) -> list[tuple[str, str]]:
    """Rows with a dictionary, each beside the row that lacks only that: ``mn_x`` and ``vanilla_x``."""
    pairs = [(method, f"vanilla{method.removeprefix('mn')}") for method in _adapted(result)]
    return [(first, second) for first, second in pairs if second in result.methods]


def _adapted(result: Results) -> list[str]:
    return [method for method in result.methods if method == "mn" or method.startswith("mn_")]


def compare(result: Results, first: str, second: str) -> PairedDifference | None:
    """``first − second`` by fold or seed; None where one of them was not run."""
    return paired_difference(result.compared(first), result.compared(second))


def differences(result: Results) -> list[tuple[str, str, PairedDifference]]:
    """(first, second, their paired difference) of the comparisons that the runs allow."""
    found = []
    adapted = _adapted(result)
    for first, second in [*with_and_without(result), *((method, "knn") for method in adapted)]:
        difference = compare(result, first, second)
        if difference:
            found.append((label(first), label(second), difference))
    for method in adapted:
        before = f"{result.figure}_before"
        if before in result.metrics.get(method, {}):
            difference = paired_difference(result.compared(method), result.compared(method, before))
            assert difference is not None
            found.append((label(method), f"{label(method)} before adaptation", difference))
    return found


def verdict(result: Results, difference: PairedDifference) -> str:
    """``better``, ``worse`` or ``no clear difference``; higher is better for accuracy, lower for errors."""
    if not any(difference.differences):
        return _ALIKE
    if difference.interval is None:
        return "one run each: no spread to judge by"
    good = difference.sign if result.figure == "accuracy" else -difference.sign
    return {1: "better", 0: "no clear difference", -1: "worse"}[good]


def introduction(results: list[Results]) -> str:
    """What was run."""
    runs = sum(len(result.runs) for result in results)
    names = [f"{r.entry.name} ({', '.join(map(label, r.methods))}; {repeats(r)})" for r in results]
    return (
        f"{count(runs, 'run')} on {count(len(results), 'data set')}: {listing(names)}. Every figure below is "
        "measured on test data that neither training nor the choice of weights has seen, and is given as "
        "mean ± sample standard deviation over the runs. Differences are taken between runs that share the "
        "fold (of several seeds, the mean) or, with one split, the seed, so that what they have in common "
        "cancels out."
    )


def repeats(result: Results) -> str:
    """``3 seeds``, ``5 folds``, ``5 folds × 2 seeds``."""
    folds = len({run.config.split for run in result.runs})
    seeds = len({run.config.seed for run in result.runs})
    if folds == 1:
        return count(seeds, "seed")
    return count(folds, "fold") + (f" × {count(seeds, 'seed')}" if seeds > 1 else "")


def finding(result: Results) -> str:
    """A sentence or two on a data set: MN (or a variant) against the same without it, or the best method."""
    pairs = with_and_without(result)
    if not pairs:
        names = listing([label(method) for method in best_methods(result)])
        return f"{names}: {_figure(result, best_methods(result)[0])}, the best mean of {_all(result)}."
    first, second = ("mn", "vanilla") if ("mn", "vanilla") in pairs else pairs[0]
    difference = compare(result, first, second)
    assert difference is not None  # both methods run on the same splits and seeds
    return f"{_against(result, first, second, difference)} {_adaptation(result, first)}"


def _against(result: Results, first: str, second: str, difference: PairedDifference) -> str:
    places, name = decimals(result), label(first)
    what = "test accuracy" if result.figure == "accuracy" else "test MSE"
    amount = difference_text(difference, places) + (" points" if result.figure == "accuracy" else "")
    lead = f"{name} has a {what} of {_figure(result, first)}, {label(second)} of {_figure(result, second)}."
    outcome = verdict(result, difference)
    if outcome == _ALIKE:
        return f"{lead} They agree in every one of the {count(difference.n, 'pair')}."
    if difference.interval is None:
        return f"{lead} The difference is {amount}, of one run each: there is no spread to judge it by."
    low, high = (fixed(end, places, signed=True) for end in difference.interval)
    if outcome == "no clear difference":
        return (
            f"{lead} {name} is not clearly better or worse here: the paired difference is {amount}, and its "
            f"95{NBSP}% interval, {low} to {high}, includes zero ({count(difference.n, 'pair')})."
        )
    return (
        f"{lead} {name} is {outcome}: the paired difference is {amount}, 95{NBSP}% interval {low} to {high} "
        f"({count(difference.n, 'pair')})."
    )


def _adaptation(result: Results, method: str) -> str:
    before = f"{result.figure}_before"
    if before not in result.metrics[method]:
        return ""
    change = [run.figures[result.figure] - run.figures[before] for run in result.of(method)]
    if not any(change):
        return "Adapting to the neighbours changes no run's figure: the network does as well without it."
    shown = mean_std(result.metrics[method][before], decimals(result)) + unit(result)
    return f"The same network before adaptation: {shown}."


def difference_text(difference: PairedDifference, places: int) -> str:
    """``+43.98 ± 0.04``."""
    summary = {"mean": difference.mean}
    if difference.std is not None:
        summary["std"] = difference.std
    return mean_std(summary, places, signed=True)


def p_text(p_value: float | None) -> str:
    """``0.013``, ``< 0.001``, or a dash where there is no spread to test with."""
    if p_value is None:
        return "–"
    return f"<{NBSP}0.001" if p_value < 0.001 else fixed(p_value, 3)


def _figure(result: Results, method: str) -> str:
    return mean_std(result.metrics[method][result.figure], decimals(result)) + unit(result)


def _all(result: Results) -> str:
    return "the one method run" if len(result.methods) == 1 else f"the {len(result.methods)} methods run"
