"""Stage 6: all results in one page that opens from disk, in one file for programs, and their summary."""

from __future__ import annotations

import json
from pathlib import Path

from mn.data.catalog import read_catalog
from mn.files import replacing
from pipeline.params import CATALOG, read_params
from pipeline.paths import REPORT
from pipeline.report.page import render
from pipeline.report.paper import PAPER, read_paper
from pipeline.report.results import read_results
from pipeline.report.results_file import as_data

INDEX = REPORT / "index.html"
RESULTS = REPORT / "results.json"
METRICS = REPORT / "metrics.json"


def report(root: Path) -> Path:
    """Write ``index.html``, ``results.json``, ``metrics.json`` in ``report/`` for params.yaml's data sets.

    They depend on the results alone: the same results give the same bytes.
    """
    names = read_params(root).datasets
    catalog = read_catalog(root / CATALOG)
    paper = read_paper(root / PAPER)
    results = [read_results(root, catalog[name]) for name in names]
    page = render(results, paper)
    metrics = {result.entry.name: result.metrics for result in results}
    for path, data in ((METRICS, metrics), (RESULTS, as_data(results))):
        with replacing(root / path) as aside:
            aside.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
    with replacing(root / INDEX) as aside:
        aside.write_text(page, encoding="utf-8")
    return root / INDEX
