"""The report's sentences follow from the numbers, whichever way these go."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from mn.analysis.figures import family
from mn.analysis.metrics import summarise
from mn.data.catalog import read_catalog
from mn.engine.config import RunConfig
from pipeline.report.findings import best_methods, compare, finding, introduction, p_text, with_and_without
from pipeline.report.paper import Paper
from pipeline.report.regression import (
    regression_finding,
    regression_notes,
    regression_ranking,
    regression_table,
)
from pipeline.report.results import Results, Run
from pipeline.report.tables import differences_table, search_tables
from pipeline.report.words import count, fixed, listing, mean_std, setting, span, three_figures
from tests.conftest import ROOT

CATALOG = read_catalog(ROOT / "data/catalog.yaml")
PAPER = Paper(classification={}, regression={"music": {"knn": (0.6812, 0.0062), "mn": (0.6088, 0.005)}})


def results(dataset: str, **figures: list[float]) -> Results:
    """Runs with the given main figures by method, one per seed; ``mn_before`` are those before adaptation."""
    name = "mse" if CATALOG[dataset].task == "regression" else "accuracy"
    before = figures.pop("mn_before", [])
    runs = []
    for method, values in figures.items():
        for seed, value in enumerate(values):
            own = {name: value, **({f"{name}_before": before[seed]} if before and method == "mn" else {})}
            name_of = {"method": family(method), **({} if family(method) == method else {"variant": method})}
            config = RunConfig.model_validate({"dataset": dataset, "split": "main", "seed": seed, **name_of})
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
        ("digits", [90.0, 91.0], [90.0, 91.0], "They agree in every one of the 2 pairs."),
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


def test_differences_are_given_with_their_p_value() -> None:
    table = differences_table(results("diabetes", vanilla=[0.50, 0.51, 0.52], mn=[0.40, 0.42, 0.41]))
    # t = -0.1 / (0.01 / sqrt(3)) = -17.3 with two degrees of freedom.
    assert table.rows[0].cells[table.columns.index("p")] == "0.003"


def three_sets() -> list[Results]:
    """MN clearly below vanilla, below by mean only, and clearly above; below kNN, above it, without kNN."""
    return [
        results("music", knn=[0.7, 0.7, 0.7], vanilla=[0.60, 0.62, 0.61], mn=[0.50, 0.52, 0.52]),
        results("toms", knn=[0.03, 0.03, 0.03], vanilla=[0.05, 0.05, 0.05], mn=[0.02, 0.05, 0.06]),
        results("gom", vanilla=[0.50, 0.52, 0.52], mn=[0.60, 0.62, 0.61]),
    ]


def plain(text: str) -> str:
    return text.replace("\N{NO-BREAK SPACE}", " ")


def test_regression_counts_data_sets_either_way() -> None:
    said = plain(regression_finding(three_sets()))
    assert "below vanilla’s on 2 of 3 data sets: with p < 0.05" in said
    assert "below on 1 and above on 1." in said


def test_regression_counts_only_data_sets_with_knn_against_it() -> None:
    assert "below kNN’s on 1 of 2 data sets." in plain(regression_finding(three_sets()))
    assert "kNN" not in regression_finding(three_sets()[2:])


def test_regression_tests_all_pairs_together() -> None:
    music = three_sets()[0]
    toms = replace(music, entry=CATALOG["toms"])
    said = plain(regression_finding([music, toms]))
    # Six pairs that all fell: the likeliest of 2^6 signs, twice for two sides.
    assert "Over all 6 pairs, MN’s MSE" in said
    assert f"gives p = {2 / 2**6:.3f}." in said


def test_variants_with_a_dictionary_are_compared_with_those_without() -> None:
    made = results(
        "music", vanilla=[0.5, 0.6], mn=[0.6, 0.5], vanilla_falling=[0.4, 0.3], mn_falling=[0.2, 0.1]
    )
    assert with_and_without(made) == [("mn", "vanilla"), ("mn_falling", "vanilla_falling")]
    assert regression_table([made, made], PAPER).columns[4:6] == ["p", "p (falling)"]
    said = plain(regression_finding([made, made]))
    assert "MN’s mean test MSE is below vanilla’s on 0 of 2 data sets" in said
    assert "MN (falling)’s mean test MSE is below vanilla (falling)’s on 2 of 2 data sets" in said


def test_seeds_of_a_fold_count_once() -> None:
    runs = [
        Run("key", RunConfig(dataset="music", split=split, method=method, seed=seed), {}, {"mse": mse}, [])
        for method, split, seed, mse in [
            ("mn", "fold0", 0, 0.1),
            ("mn", "fold0", 1, 0.3),
            ("mn", "fold1", 0, 0.5),
            ("vanilla", "fold0", 0, 0.4),
            ("vanilla", "fold1", 0, 0.6),
        ]
    ]
    made = replace(results("music", mn=[0.3], vanilla=[0.5]), runs=runs)
    assert made.compared("mn") == pytest.approx({"fold0": 0.2, "fold1": 0.5})
    difference = compare(made, "mn", "vanilla")
    assert difference is not None
    assert difference.differences == pytest.approx([-0.2, -0.1])


def test_regression_says_nothing_without_the_pair() -> None:
    assert regression_finding([results("music", knn=[0.7]), results("toms", knn=[0.1])]) == ""


def test_regression_table_has_the_papers_figures_beside_ours() -> None:
    table = regression_table(three_sets(), PAPER)
    assert table.columns == ["kNN", "vanilla", "MN", "p", "kNN, paper", "MN, paper"]
    rows = {row.head: [plain(cell) for cell in row.cells] for row in table.rows}
    assert rows["music"] == [
        "0.7000 ± 0.0000",
        "0.6100 ± 0.0100",
        "0.5133 ± 0.0115",
        "0.001",
        "0.6812 ± 0.0062",
        "0.6088 ± 0.0050",
    ]
    assert (rows["gom"][0], rows["gom"][-1]) == ("–", "–")


def test_regression_table_marks_the_best_of_ours() -> None:
    table = regression_table(three_sets(), PAPER)
    marked = {row.head: [table.columns[i] for i in row.best_cells] for row in table.rows}
    assert marked == {"music": ["MN"], "toms": ["kNN"], "gom": ["vanilla"]}


def test_regression_table_names_baselines_that_the_paper_lacks() -> None:
    table = regression_table([results("music", hgb=[0.6], tabm=[0.6]), results("toms", hgb=[0.1])], PAPER)
    assert table.columns == ["HGB (not in the paper)", "TabM (not in the paper)"]


def test_only_methods_of_every_data_set_are_ranked() -> None:
    ranking = regression_ranking(three_sets())
    assert ranking is not None
    assert ranking.ranks == pytest.approx({"mn": 4 / 3, "vanilla": 5 / 3})


def test_targets_of_gom_are_explained_where_it_is_shown() -> None:
    (note,) = regression_notes(three_sets())
    assert note.startswith("gom has two targets")
    assert regression_notes(three_sets()[:2]) == []


def stage(**changes: Any) -> dict[str, Any]:
    """A round of the search as the train stage writes it."""
    candidates = [
        {
            "settings": {"T": 0.1, "similarity": "rms"},
            "keys": ["a"],
            "val_loss": 0.25,
            "epochs": 40,
            "seconds": 12.3,
            "chosen": True,
        },
        {"settings": {}, "keys": ["b"], "val_loss": 0.5, "epochs": 9, "seconds": 3.0, "chosen": False},
    ]
    whole = {"method": "mn", "also": ["mn_ifilm"], "splits": ["fold0"], "seed": 0, "applied": True}
    return {**whole, "candidates": candidates, **changes}


def test_search_shows_candidates_and_the_chosen_one() -> None:
    (table,) = search_tables(replace(three_sets()[0], search=[stage()]))
    assert table.caption == "Search 1 on music: MN, MN + iFiLM; fold0, seed 0"
    assert [(row.head, row.cells) for row in table.rows] == [
        ("T: 0.1, similarity: rms", ["0.2500", "40", "12.3", "chosen"]),
        ("nothing changed", ["0.5000", "9", "3.00", ""]),
    ]


def test_search_that_runs_do_not_use_says_so() -> None:
    (table,) = search_tables(replace(three_sets()[0], search=[stage(applied=False)]))
    assert table.caption.endswith("; tried only, the runs do not use it")


def test_choice_of_settings_is_explained_where_one_was_made() -> None:
    music, toms, _ = three_sets()
    (note,) = regression_notes(
        [replace(music, search=[stage()]), replace(toms, search=[stage(applied=False)])]
    )
    assert note.startswith("The settings of music were chosen per data set, by the validation loss")


def test_p_values_are_written_to_three_places() -> None:
    assert [p_text(p) for p in (None, 0.0312, 0.0004)] == ["–", "0.031", "<\N{NO-BREAK SPACE}0.001"]


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
