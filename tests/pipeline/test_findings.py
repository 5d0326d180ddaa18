"""The report's sentences follow from the numbers, whichever way these go."""

from __future__ import annotations

import pytest

from mn.analysis.metrics import summarise
from mn.data.catalog import read_catalog
from mn.engine.config import RunConfig
from pipeline.report.findings import best_methods, finding, introduction
from pipeline.report.results import Results, Run
from pipeline.report.words import count, fixed, listing, mean_std, setting, span, three_figures
from tests.conftest import ROOT

CATALOG = read_catalog(ROOT / "data/catalog.yaml")


def results(dataset: str, **figures: list[float]) -> Results:
    """Runs with the given main figures by method, one per seed; ``mn_before`` are those before adaptation."""
    name = "mse" if dataset == "diabetes" else "accuracy"
    before = figures.pop("mn_before", [])
    runs = []
    for method, values in figures.items():
        for seed, value in enumerate(values):
            own = {name: value, **({f"{name}_before": before[seed]} if before and method == "mn" else {})}
            config = RunConfig.model_validate(
                {"dataset": dataset, "split": "main", "method": method, "seed": seed}
            )
            runs.append(Run(f"key{seed}", config, {}, own, []))
    metrics = {method: {name: summarise(values)} for method, values in figures.items()}
    if before:
        metrics["mn"][f"{name}_before"] = summarise(before)
    return Results(CATALOG[dataset], metrics, (10, 2), {}, runs, [], None)


@pytest.mark.parametrize(
    ("dataset", "vanilla", "mn", "said"),
    [
        ("digits", [90.0, 91.0, 90.5], [95.0, 96.1, 95.4], "MN is better: the paired difference is +5.00"),
        ("digits", [95.0, 96.1, 95.4], [90.0, 91.0, 90.5], "MN is worse: the paired difference is −5.00"),
        ("digits", [90.0, 91.0, 92.0], [91.0, 90.0, 92.5], "MN is not clearly better or worse here"),
        (
            "diabetes",
            [0.50, 0.51, 0.52],
            [0.40, 0.42, 0.41],
            "MN is better: the paired difference is −0.1000",
        ),
        ("diabetes", [0.40, 0.42, 0.41], [0.50, 0.51, 0.52], "MN is worse: the paired difference is +0.1000"),
        ("digits", [90.0, 91.0], [90.0, 91.0], "They agree in every one of the 2 runs."),
        ("digits", [90.0], [95.0], "The difference is +5.00 points, of one run each"),
    ],
)
def test_verdict_follows_the_numbers(dataset: str, vanilla: list[float], mn: list[float], said: str) -> None:
    text = finding(results(dataset, vanilla=vanilla, mn=mn)).replace("\N{NO-BREAK SPACE}", " ")
    assert said in text


def test_adaptation_that_changes_nothing_is_said_to() -> None:
    same = results("digits", vanilla=[90.0, 91.0], mn=[92.0, 93.0], mn_before=[92.0, 93.0])
    assert "the network does as well without it" in finding(same)
    other = results("digits", vanilla=[90.0, 91.0], mn=[92.0, 93.0], mn_before=[50.0, 52.0])
    assert "before adaptation: 51.00 ± 1.41 %." in finding(other).replace("\N{NO-BREAK SPACE}", " ")


def test_without_the_pair_the_best_method_is_named() -> None:
    assert "the best mean of the 2 methods run" in finding(results("diabetes", knn=[0.6], vanilla=[0.5]))
    assert best_methods(results("diabetes", knn=[0.6], vanilla=[0.5])) == ["vanilla"]
    assert best_methods(results("digits", vanilla=[90.0], mn=[90.0])) == ["vanilla", "mn"]


def test_introduction_counts_runs_and_data_sets() -> None:
    text = introduction(
        [results("digits", vanilla=[90.0, 91.0], mn=[90.0, 91.0]), results("diabetes", knn=[0.6])]
    )
    plain = text.replace("\N{NO-BREAK SPACE}", " ")
    assert plain.startswith(
        "5 runs on 2 data sets: digits (vanilla, MN; 2 seeds) and diabetes (kNN; 1 seed)."
    )


def test_numbers_are_written_as_people_write_them() -> None:
    assert [fixed(-0.224, 2), fixed(-0.001, 2), fixed(0.5, 1, signed=True)] == ["−0.22", "0.00", "+0.5"]
    assert fixed(-0.001, 2, signed=True) == "0.00"
    assert mean_std({"mean": 1.0}, 2) == "1.00"
    assert [three_figures(value) for value in (0.05, 21.0, 127.4, 1270.0)] == [
        "0.0500",
        "21.0",
        "127",
        "1,270",
    ]
    assert count(2, "class", "classes") == "2\N{NO-BREAK SPACE}classes"
    assert [listing(["a"]), listing(["a", "b", "c"])] == ["a", "a, b and c"]
    assert [span([300, 300]), span([88, 89])] == ["300", "88–89"]
    assert [setting(value) for value in (True, 0.001, [1, 2], "auto")] == ["true", "0.001", "[1, 2]", "auto"]
