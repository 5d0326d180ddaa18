"""docs/regression.md says what docs/regression.json holds."""

from __future__ import annotations

import json
import re
from statistics import fmean, stdev

import pytest
from scipy import stats

from tests.conftest import ROOT

MEASURED = json.loads((ROOT / "docs/regression.json").read_text(encoding="utf-8"))
TEXT = (ROOT / "docs/regression.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("dataset", MEASURED)
def test_table_is_that_of_the_measured_folds(dataset: str) -> None:
    (row,) = re.findall(rf"^\| {dataset} \| .*±.*$", TEXT, re.MULTILINE)
    cells = [cell.strip(" *") for cell in row.split("|")]
    by_method = {m: list(folds.values()) for m, folds in MEASURED[dataset]["test_mse"].items()}
    for method, cell in zip(
        ("knn", "vanilla", "mn", "hgb"), (cells[3], cells[4], cells[5], cells[7]), strict=True
    ):
        mean, std = cell.split(" ± ")
        places = len(mean.split(".")[1])
        folds = by_method[method]
        assert len(folds) == 5
        assert (mean, std) == (f"{fmean(folds):.{places}f}", f"{stdev(folds):.{places}f}")
    assert cells[6] == f"{stats.ttest_rel(by_method['mn'], by_method['vanilla']).pvalue:.3f}"
