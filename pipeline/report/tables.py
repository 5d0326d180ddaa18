"""The report's tables as plain rows of text: what the template lays out."""

from __future__ import annotations

from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

import numpy as np

from mn.analysis.figures import family, label, strip
from mn.analysis.metrics import summarise
from pipeline.report.findings import best_methods, decimals, difference_text, differences, p_text, verdict
from pipeline.report.paper import Paper
from pipeline.report.results import Results, Run
from pipeline.report.words import fixed, mean_std, setting, span, three_figures


@dataclass(frozen=True)
class Row:
    """A row of a table: its header, its cells, the method whose colour it has, and how it stands out."""

    head: str
    cells: list[str]
    method: str = ""
    best: bool = False
    strip: str = ""
    best_cells: tuple[int, ...] = ()  # which cells stand out, where it is not the whole row


@dataclass(frozen=True)
class Table:
    """A table. Its caption also names the box that it scrolls in."""

    caption: str
    columns: list[str]
    rows: list[Row] = field(default_factory=list)
    strips: str = ""  # the header of the column of strips, if there is one


def methods_table(result: Results) -> Table:
    """Methods × figures: the main figure, the same before adaptation, runs, seconds."""
    name = figure_name(result)
    before, places = f"{result.figure}_before", decimals(result)
    low, high = _range(result)
    best = best_methods(result)
    table = Table(
        f"Methods on {result.entry.name}: test figures, mean ± sample standard deviation over runs",
        [name, "before adaptation", "runs", "training, s per run"],
        strips=f"each run, {fixed(low, places)} to {fixed(high, places)}",
    )
    for method, figures in result.metrics.items():
        runs = result.of(method)
        table.rows.append(
            Row(
                head=label(method),
                cells=[
                    mean_std(figures[result.figure], places),
                    mean_std(figures[before], places) if before in figures else "–",
                    str(len(runs)),
                    three_figures(fmean(run.record["seconds"] for run in runs)),
                ],
                method=family(method),
                best=method in best and len(result.metrics) > 1,
                strip=strip(method, result.values(method), low=low, high=high),
            )
        )
    return table


def differences_table(result: Results) -> Table:
    places = decimals(result)
    table = Table(
        f"Paired differences on {result.entry.name}, {figure_name(result)}",
        ["difference", "95 % interval", "p", "pairs", "verdict"],
    )
    for first, second, difference in differences(result):
        interval = difference.interval
        ends = [fixed(end, places, signed=True) for end in interval] if interval else []
        table.rows.append(
            Row(
                head=f"{first} − {second}",
                cells=[
                    difference_text(difference, places),
                    " to ".join(ends) or "–",
                    p_text(difference.p_value),
                    str(difference.n),
                    verdict(result, difference),
                ],
            )
        )
    return table


def runs_table(result: Results) -> Table:
    """Every run: figures, epochs, seconds, when it ended, and its key in the run store."""
    before, places = f"{result.figure}_before", decimals(result)
    table = Table(
        f"Every run on {result.entry.name}",
        [figure_name(result), "before adaptation", "epochs", "training, s", "finished (UTC)", "key"],
    )
    for run in result.runs:
        table.rows.append(
            Row(
                head=run.config.name,
                cells=[
                    fixed(run.figures[result.figure], places),
                    fixed(run.figures[before], places) if before in run.figures else "–",
                    str(len(run.history)) if run.history else "–",
                    three_figures(run.record["seconds"]),
                    run.record["finished"].replace("T", " ").removesuffix("+00:00"),
                    run.key,
                ],
                method=family(run.config.row),
            )
        )
    return table


def dictionary_table(result: Results) -> Table:
    """Per method with a dictionary: its size, how much of it is in use, and how many entries count."""
    table = Table(
        f"The learned dictionaries on {result.entry.name}, seen from the test data",
        ["entries", "in use, %", "effective neighbours", "middle 90 %", "inner rate α"],
    )
    for method in dict.fromkeys(use.method for use in result.dictionaries):
        uses = [use for use in result.dictionaries if use.method == method]
        effective = np.concatenate([use.effective for use in uses])
        low, middle, high = np.percentile(effective, [5, 50, 95]).tolist()
        table.rows.append(
            Row(
                head=label(method),
                cells=[
                    span([use.size for use in uses]),
                    mean_std(summarise([100 * use.share_in_use for use in uses]), 1),
                    three_figures(middle),
                    f"{three_figures(low)} – {three_figures(high)}",
                    three_figures(fmean(use.alpha for use in uses)),
                ],
                method=family(method),
            )
        )
    return table


def paper_table(result: Results, paper: Paper) -> Table | None:
    """The paper's figures beside ours, or None where the paper has none."""
    network = next((run.config.network for run in result.runs if run.config.network), None)
    printed = paper.figures(result.entry.name, network.backbone if network else None)
    if not printed:
        return None
    places = decimals(result)
    table = Table(
        f"The paper's figures and ours on {result.entry.name}, {figure_name(result)}",
        ["paper", "here", "runs here"],
    )
    for method in dict.fromkeys([*printed, *result.methods]):
        mean, std = printed.get(method, (None, None))
        paper_says = "–" if mean is None else mean_std({"mean": mean, "std": std or 0.0}, places)
        ours = result.metrics.get(method)
        here = mean_std(ours[result.figure], places) if ours else "–"
        table.rows.append(Row(label(method), [paper_says, here, str(len(result.of(method)))], family(method)))
    return table


def search_tables(result: Results) -> list[Table]:
    """Per round of the search its candidates: settings, validation loss, and which was chosen."""
    places = decimals(result) if result.figure == "mse" else 4
    tables = []
    for number, stage in enumerate(result.search, 1):
        methods = ", ".join(map(label, [stage["method"], *stage["also"]]))
        use = "" if stage["applied"] else "; tried only, the runs do not use it"
        tried_on = ", ".join(stage["splits"])
        table = Table(
            f"Search {number} on {result.entry.name}: {methods}; {tried_on}, seed {stage['seed']}{use}",
            ["validation loss", "epochs", "training, s", "choice"],
        )
        for candidate in stage["candidates"]:
            settings = [f"{name}: {setting(value)}" for name, value in candidate["settings"].items()]
            table.rows.append(
                Row(
                    head=", ".join(settings) or "nothing changed",
                    cells=[
                        fixed(candidate["val_loss"], places),
                        fixed(candidate["epochs"], 0),  # a mean over splits
                        three_figures(candidate["seconds"]),
                        "chosen" if candidate["chosen"] else "",
                    ],
                    method=family(stage["method"]),
                )
            )
        tables.append(table)
    return tables


def settings_table(result: Results) -> Table:
    """The resolved settings, a column per method; a dash where a method has no such setting."""
    columns = {method: _settings(result.of(method)[0]) for method in result.methods}
    table = Table(f"Resolved settings on {result.entry.name}", [label(method) for method in columns])
    for key in dict.fromkeys(key for column in columns.values() for key in column):
        table.rows.append(Row(key, [column.get(key, "–") for column in columns.values()]))
    return table


def surroundings_table(results: list[Results]) -> Table:
    """Machine, device and versions of every run: one column of values, all of them if they differ."""
    return Table(
        "What the runs were computed on and with",
        ["value"],
        [Row(key, [", ".join(values)]) for key, values in surroundings(results).items()],
    )


def surroundings(results: list[Results]) -> dict[str, list[str]]:
    """The values of each: one, or more where the runs differ."""
    seen: dict[str, list[str]] = {}
    for run in (run for result in results for run in result.runs):
        record = run.record
        facts = {
            "machine": record["machine"],
            "device": record["device"],
            "threads per run": record["threads"],
        }
        for key, value in {**facts, **record["versions"]}.items():
            if str(value) not in seen.setdefault(key, []):
                seen[key].append(str(value))
    return seen


def figure_name(result: Results) -> str:
    return "accuracy, %" if result.figure == "accuracy" else "MSE"


def _range(result: Results) -> tuple[float, float]:
    values = [run.figures[result.figure] for run in result.runs]
    return min(values), max(values)


def _settings(run: Run) -> dict[str, Any]:
    groups = {key: value for key, value in run.config.identity().items() if isinstance(value, dict)}
    return {
        f"{group}.{key}": setting(value) for group, values in groups.items() for key, value in values.items()
    }
