"""The page: tables, figures and sentences put into the template."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from mn.analysis.figures import (
    dictionary_panels,
    label,
    legend,
    ranking_diagram,
    region_legend,
    region_panels,
    stylesheet,
    three_moments,
    training_panels,
)
from pipeline.report.findings import finding, introduction, repeats
from pipeline.report.paper import Paper
from pipeline.report.regression import (
    ranking_caption,
    regression_finding,
    regression_notes,
    regression_ranking,
    regression_table,
)
from pipeline.report.results import Results
from pipeline.report.tables import (
    dictionary_table,
    differences_table,
    methods_table,
    paper_table,
    runs_table,
    search_tables,
    settings_table,
    surroundings_table,
)
from pipeline.report.words import count, listing, span

_TEMPLATE = "report.html.j2"


def render(results: list[Results], paper: Paper) -> str:
    """The whole page as one HTML document that loads nothing."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    papers = {result.entry.name: paper_table(result, paper) for result in results}
    return environment.get_template(_TEMPLATE).render(
        introduction=introduction(results),
        datasets=[_dataset(result) for result in results],
        regression=_regression([result for result in results if result.figure == "mse"], paper),
        paper_tables=[table for table in papers.values() if table],
        without_paper=listing([name for name, table in papers.items() if not table] or [""]),
        surroundings=surroundings_table(results),
        method_colours=Markup(stylesheet()),  # noqa: S704 our own style sheet
    )


def _dataset(result: Results) -> dict[str, Any]:
    entry, regions = result.entry, result.regions
    histories = [(run.config.row, run.history) for run in result.runs if run.history]
    return {
        "name": entry.name,
        "title": entry.title,
        "finding": finding(result),
        "facts": {
            "Data": _size(result),
            "Split": _split(result),
            "Source": f"{entry.source}; {entry.citation}",
            "Licence": entry.licence,
        },
        "methods": methods_table(result),
        "lower_is_better": result.figure == "mse",
        "differences": differences_table(result),
        "runs": runs_table(result),
        "search": search_tables(result),
        "settings": settings_table(result),
        "legend": _safe(legend(dict.fromkeys(method for method, _ in histories))),
        "curves": [_safe(panel) for panel in training_panels(histories)] if histories else [],
        "repeats": repeats(result),
        "regions": [_safe(panel) for panel in region_panels(regions)] if regions else [],
        "regions_legend": _safe(region_legend(entry.classes)) if regions else "",
        "regions_run": regions.run if regions else "",
        "moments": [f"{moment.iteration:,}" for moment in regions.moments] if regions else [],
        "chosen": listing([f"{i:,}" for i in three_moments([m.iteration for m in regions.moments])])
        if regions
        else "",
        "dictionary": dictionary_table(result),
        "dictionary_panels": [_safe(panel) for panel in dictionary_panels(result.dictionaries)]
        if result.dictionaries
        else [],
        "dictionary_legend": _safe(legend(dict.fromkeys(use.method for use in result.dictionaries))),
        "method_names": [label(method) for method in result.methods],
    }


def _regression(results: list[Results], paper: Paper) -> dict[str, Any] | None:
    """The section over data sets; None for fewer than two of them."""
    if len(results) < 2:
        return None
    ranking = regression_ranking(results)
    return {
        "finding": regression_finding(results),
        "table": regression_table(results, paper),
        "diagram": _safe(ranking_diagram(ranking)) if ranking else "",
        "caption": ranking_caption(ranking) if ranking else "",
        "notes": regression_notes(results),
    }


def _size(result: Results) -> str:
    entry, (rows, *shape) = result.entry, result.shape
    if entry.kind == "images":
        channels, height, width = shape
        what = f"{count(rows, 'image')} of {height} × {width} pixels" + (
            "" if channels == 1 else f", {channels} channels"
        )
    elif entry.kind == "points":
        what = f"{count(rows, 'point')} in the plane"
    else:
        what = f"{count(rows, 'row')} of {count(shape[0], 'column')}"
    if entry.classes:
        return f"{what}, {count(len(entry.classes), 'class', 'classes')}"
    return f"{what}; target: {listing(entry.targets)}, standardised"


def _split(result: Results) -> str:
    parts = [
        f"{span([sizes[part] for sizes in result.splits.values()])} {name}"
        for part, name in (("train", "training"), ("validation", "validation"), ("test", "test"))
    ]
    folds = f"{count(len(result.splits), 'fold')}, each " if len(result.splits) > 1 else ""
    return folds + ", ".join(parts)


def _safe(drawing: str) -> Markup:
    """SVG from ``mn.analysis.figures``, which escapes what it is given."""
    return Markup(drawing)  # noqa: S704
