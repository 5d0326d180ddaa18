"""docs/regression.md says what docs/regression.json and docs/regression_falling.json hold."""

from __future__ import annotations

import json
import re
from statistics import fmean, stdev
from typing import Any

import pytest
from scipy import stats

from tests.conftest import ROOT

CONSTANT = json.loads((ROOT / "docs/regression.json").read_text(encoding="utf-8"))
FALLING = json.loads((ROOT / "docs/regression_falling.json").read_text(encoding="utf-8"))
SETS = list(CONSTANT)
TEXT = (ROOT / "docs/regression.md").read_text(encoding="utf-8")
Errors = dict[str, list[float]]  # of every fold, by method


def rows(section: str) -> dict[str, list[str]]:
    """The cells of a section's rows that have a mean and a spread, by their first cell."""
    text = TEXT[TEXT.index(f"## {section}\n") :]
    found = re.findall(r"^\| (\w+) \| (.*±.*) \|$", text.split("\n## ", 1)[0], re.MULTILINE)
    return {name: [cell.strip(" *") for cell in cells.split("|")] for name, cells in found}


def errors_constant(dataset: str) -> Errors:
    return {method: list(folds.values()) for method, folds in CONSTANT[dataset]["test_mse"].items()}


def errors_falling(dataset: str) -> Errors:
    by_method: Errors = {}
    for run in FALLING["datasets"][dataset]["runs"]:
        by_method.setdefault(run["method"], []).append(run["mse"])
    return by_method


def assert_shown(cell: str, folds: list[float]) -> None:
    mean, std = cell.split(" ± ")
    places = len(mean.split(".")[1])
    assert len(folds) == 5
    assert (mean, std) == (f"{fmean(folds):.{places}f}", f"{stdev(folds):.{places}f}")


def assert_row(cells: list[str], methods: list[str], errors: Errors) -> None:
    """Cells in the order of ``methods``, of which ``p`` is that of MN against vanilla, named before it."""
    for method, cell in zip(methods, cells, strict=True):
        if method == "p":
            vanilla, mn = methods[methods.index("p") - 2 : methods.index("p")]
            assert cell == f"{stats.ttest_rel(errors[mn], errors[vanilla]).pvalue:.3f}"
        else:
            assert_shown(cell, errors[method])


@pytest.mark.parametrize("dataset", SETS)
def test_papers_schedule_is_that_of_the_measured_folds(dataset: str) -> None:
    methods = ["knn", "vanilla", "mn", "p"]
    assert_row(rows("The paper's schedule")[dataset][1:], methods, errors_constant(dataset))


@pytest.mark.parametrize("dataset", SETS)
def test_falling_rate_is_that_of_the_measured_folds(dataset: str) -> None:
    methods = ["vanilla_falling", "mn_falling", "p", "hgb", "tabm"]
    assert_row(rows("A rate that falls")[dataset], methods, errors_falling(dataset))


@pytest.mark.parametrize(
    ("errors", "said"),
    [
        (
            [{m: list(f.values()) for m, f in CONSTANT[s]["test_mse"].items()} for s in SETS],
            ("vanilla", "mn"),
        ),
        ([errors_falling(s) for s in SETS], ("vanilla_falling", "mn_falling")),
    ],
    ids=["constant", "falling"],
)
def test_how_many_sets_are_below_is_counted(errors: list[Errors], said: tuple[str, str]) -> None:
    vanilla, mn = said
    below = [fmean(e[mn]) < fmean(e[vanilla]) for e in errors]
    clear = [
        b and stats.ttest_rel(e[mn], e[vanilla]).pvalue < 0.05 for b, e in zip(below, errors, strict=True)
    ]
    told = re.search(
        rf"below (?:vanilla's\s+)?on {sum(below)} of 8(?: sets)?, with p < 0.05 on {sum(clear)}", TEXT
    )
    assert told, (sum(below), sum(clear))


def test_parts_are_those_measured() -> None:
    section = TEXT[TEXT.index("## What each part is worth") :].split("\n## ", 1)[0]
    table = [[cell.strip() for cell in line.split("|")[1:-1]] for line in section.splitlines() if "|" in line]
    names, measured = table[0][1:], FALLING["ablation"]
    assert names == [name for name in SETS if name in measured]
    shown: dict[str, Any] = {row[0]: dict(zip(names, row[1:], strict=True)) for row in table[2:]}
    for name in names:
        vanilla, found = measured[name]["vanilla"], measured[name]["mn"]
        assert shown["vanilla: validation MSE"][name] == f"{vanilla:.4g}"
        assert shown["MN as found"][name] == f"{found / vanilla:.3f}"
        for candidate in measured[name]["candidates"]:
            setting = ", ".join(f"{key}: {value}" for key, value in candidate["settings"].items())
            same = candidate["val_loss"] == found
            assert shown[setting][name] == ("as found" if same else f"{candidate['val_loss'] / vanilla:.3f}")
