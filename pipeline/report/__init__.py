"""Stage 6: all results in one page that opens from disk, and their summary for ``dvc metrics``."""

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

INDEX = REPORT / "index.html"
METRICS = REPORT / "metrics.json"


def report(root: Path) -> Path:
    """Write ``report/index.html`` and ``report/metrics.json`` for the data sets that params.yaml names.

    Both depend on the results alone: the same results give the same bytes.
    """
    names = read_params(root).datasets
    catalog = read_catalog(root / CATALOG)
    paper = read_paper(root / PAPER)
    results = [read_results(root, catalog[name]) for name in names]
    page = render(results, paper)
    summary = {result.entry.name: result.metrics for result in results}
    with replacing(root / METRICS) as aside:
        aside.write_text(json.dumps(summary, indent=1) + "\n", encoding="utf-8")
    with replacing(root / INDEX) as aside:
        aside.write_text(page, encoding="utf-8")
    return root / INDEX
