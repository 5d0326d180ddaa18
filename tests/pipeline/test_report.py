"""The report on tiny real runs: what it says, what it refuses, and how a browser sees it."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from dataclasses import replace
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from statistics import fmean

import pytest

from mn.data.catalog import read_catalog
from mn.errors import MNError
from pipeline.download import download
from pipeline.evaluate import evaluate
from pipeline.export import export
from pipeline.preprocess import preprocess
from pipeline.report import report
from pipeline.report.page import render
from pipeline.report.paper import read_paper
from pipeline.report.results import read_results
from pipeline.train import train
from tests.conftest import ROOT, TINY, set_params

DATASETS = ["spiral", "digits", "diabetes"]
STAGES = (download, preprocess, train, evaluate, export)
INPUTS = ("params.yaml", "recipes.yaml", "data/catalog.yaml", "data/paper_tables.yaml")
PAPER_DIGITS = "\n    digits:\n      maxl: [98.76, 0.54]\n      mn: [99.12, 0.34]\n"


@pytest.fixture(scope="module")
def reported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with every stage run on tiny data, and a paper that knows ``digits``. Not to be changed."""
    root = tmp_path_factory.mktemp("report") / "project"
    (root / "data").mkdir(parents=True)
    for name in INPUTS:
        shutil.copy(ROOT / name, root / name)
    paper = root / "data/paper_tables.yaml"
    text = paper.read_text(encoding="utf-8")
    paper.write_text(text.replace("  convnet4:\n", "  convnet4:" + PAPER_DIGITS, 1), encoding="utf-8")
    set_params(root, datasets=DATASETS, seeds=[0, 1], **TINY)
    set_params(root, train={"epochs": 2, "checkpoint_seconds": 60.0})
    for dataset in DATASETS:
        for stage in STAGES:
            stage(root, dataset)
    report(root)
    return root


@pytest.fixture
def project(reported: Path, tmp_path: Path) -> Path:
    """A copy of it that a test may break."""
    return Path(shutil.copytree(reported, tmp_path / "project"))


@pytest.fixture(scope="module")
def page(reported: Path) -> str:
    return (reported / "report/index.html").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def across(reported: Path) -> str:
    """The page of two regression data sets: ``diabetes``, and the same figures under the name ``gom``."""
    catalog = read_catalog(reported / "data/catalog.yaml")
    diabetes = read_results(reported, catalog["diabetes"])
    gom = replace(diabetes, entry=catalog["gom"])
    return render([diabetes, gom], read_paper(reported / "data/paper_tables.yaml"))


class Elements(HTMLParser):
    """All elements with their attributes, and the text of table cells by table caption."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.tables: list[list[list[str]]] = []
        self._cell: list[str] | None = None
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        if tag == "table":
            self.tables.append([])
        elif tag == "tr":
            self.tables[-1].append([])
        elif tag in ("th", "td", "caption"):
            self._cell = []

    def handle_data(self, data: str) -> None:
        if self._cell is not None:
            self._cell.append(data)

    def handle_endtag(self, tag: str) -> None:
        if tag in ("th", "td", "caption") and self._cell is not None:
            text = "".join(self._cell).strip()
            self.tables[-1].append([text]) if tag == "caption" else self.tables[-1][-1].append(text)
            self._cell = None

    def table(self, caption: str) -> dict[str, list[str]]:
        """The rows, by their header, of the table whose caption starts so."""
        (table,) = [rows for rows in self.tables if rows[0][0].startswith(caption)]
        return {row[0].removesuffix("best mean"): row[1:] for row in table[1:]}


@pytest.mark.parametrize("dataset", DATASETS)
def test_table_has_every_methods_mean_and_std(reported: Path, page: str, dataset: str) -> None:
    metrics = json.loads((reported / f"results/{dataset}/metrics.json").read_text(encoding="utf-8"))
    names = {"vanilla_ifilm": "vanilla + iFiLM", "mn": "MN", "mn_ifilm": "MN + iFiLM", "knn": "kNN"}
    rows = Elements(page).table(f"Methods on {dataset}")
    for method, figures in metrics.items():
        cells = rows[names.get(method, method)]
        figure, places = ("mse", 4) if dataset == "diabetes" else ("accuracy", 2)
        for cell, key in zip(cells, (figure, f"{figure}_before"), strict=False):
            if key not in figures:
                assert cell == "–"
                continue
            mean, std = figures[key]["mean"], figures[key]["std"]
            assert cell.replace("\N{NO-BREAK SPACE}", " ") == f"{mean:.{places}f} ± {std:.{places}f}"
        assert cells[2] == ("10" if dataset == "diabetes" else "2")


def test_summary_is_that_of_the_data_sets(reported: Path) -> None:
    summary = json.loads((reported / "report/metrics.json").read_text(encoding="utf-8"))
    assert list(summary) == DATASETS
    for dataset, metrics in summary.items():
        assert metrics == json.loads((reported / f"results/{dataset}/metrics.json").read_text("utf-8"))


def test_results_for_programs_have_every_run(reported: Path) -> None:
    told = json.loads((reported / "report/results.json").read_text(encoding="utf-8"))
    summary = json.loads((reported / "report/metrics.json").read_text(encoding="utf-8"))
    assert "torch" in told["computed_with"]
    assert list(told["datasets"]) == DATASETS
    for dataset, result in told["datasets"].items():
        figure = "mse" if dataset == "diabetes" else "accuracy"
        for method, figures in summary[dataset].items():
            own = [run[figure] for run in result["runs"] if run["method"] == method]
            assert len(own) == (10 if dataset == "diabetes" else 2)
            assert fmean(own) == pytest.approx(figures[figure]["mean"], rel=1e-12)
    diabetes = told["datasets"]["diabetes"]
    assert (diabetes["inputs"], len(diabetes["splits"])) == ([10], 5)
    assert all(sum(sizes.values()) == diabetes["rows"] for sizes in diabetes["splits"].values())
    assert {run.get("epochs") for run in diabetes["runs"]} == {None, 2}  # kNN has none


def test_best_mean_is_marked_in_words(reported: Path, page: str) -> None:
    assert page.count("best mean</span>") >= len(DATASETS)
    metrics = json.loads((reported / "results/diabetes/metrics.json").read_text(encoding="utf-8"))
    best = min(metrics, key=lambda method: metrics[method]["mse"]["mean"])
    (rows,) = [rows for rows in Elements(page).tables if rows[0][0].startswith("Methods on diabetes")]
    (marked,) = [row[0] for row in rows[2:] if row[0].endswith("best mean")]
    assert marked.removesuffix("best mean").lower() == best


def test_paired_difference_is_the_mean_of_the_runs_differences(reported: Path, page: str) -> None:
    rows = json.loads((reported / "results/diabetes/evaluation/runs.json").read_text(encoding="utf-8"))
    runs = {(row["method"], row["split"], row["seed"]): row["mse"] for row in rows}
    differences = [
        value - runs["vanilla", split, seed]
        for (method, split, seed), value in runs.items()
        if method == "mn"
    ]
    shown = Elements(page).table("Paired differences on diabetes")["MN − vanilla"]
    mean = sum(differences) / len(differences)
    assert shown[0].split("\N{NO-BREAK SPACE}")[0].replace("−", "-") == f"{mean:+.4f}"
    assert shown[3] == "5", "a fold has two seeds, which are no pairs of their own"


def test_papers_figures_stand_beside_ours_where_it_has_any(page: str) -> None:
    rows = Elements(page).table("The paper's figures and ours on digits")
    assert rows["MAXL"] == ["98.76\N{NO-BREAK SPACE}±\N{NO-BREAK SPACE}0.54", "–", "0"]
    assert rows["MN"][0].startswith("99.12")
    assert rows["vanilla"][0] == "–"
    assert "prints no numbers for spiral and diabetes" in " ".join(page.split())


def test_one_regression_data_set_has_no_section_across(page: str) -> None:
    assert "Regression across data sets" not in page


def test_regression_across_data_sets_is_a_table_like_the_papers(reported: Path, across: str) -> None:
    metrics = json.loads((reported / "results/diabetes/metrics.json").read_text(encoding="utf-8"))
    rows = Elements(across).table("Test MSE by data set")
    assert list(rows) == ["", "diabetes", "gom"]
    column = rows[""].index("MN")
    assert rows["diabetes"][column].startswith(f"{metrics['mn']['mse']['mean']:.4f}")
    assert rows["gom"][rows[""].index("MN, paper")].startswith("0.5681")
    assert sum(cell.endswith("best mean") for cell in rows["gom"]) == 1


def test_regression_across_data_sets_is_found_drawn_and_explained(across: str) -> None:
    elements = Elements(across).found
    assert ("a", {"href": "#regression"}) in elements
    assert any((a.get("aria-label") or "").startswith("Mean ranks of methods over 2") for _, a in elements)
    assert "below vanilla’s on" in across
    assert "gom has two targets" in across


def test_search_is_shown_where_there_was_one(project: Path, page: str) -> None:
    candidate = {"settings": {"T": 0.1}, "keys": ["a"], "val_loss": 0.25, "epochs": 4, "seconds": 1.0}
    rounds = [
        {
            "method": "mn",
            "also": [],
            "splits": ["fold0"],
            "seed": 0,
            "applied": True,
            "candidates": [{**candidate, "chosen": True}],
        }
    ]
    (project / "results/diabetes/train/search.json").write_text(json.dumps(rounds), encoding="utf-8")
    report(project)
    shown = Elements((project / "report/index.html").read_text(encoding="utf-8"))
    assert shown.table("Search 1 on diabetes")["T: 0.1"] == ["0.2500", "4", "1.00", "chosen"]
    assert "Search 1 on" not in page


def test_settings_versions_and_keys_are_shown(reported: Path, page: str) -> None:
    settings = Elements(page).table("Resolved settings on digits")
    assert settings["dictionary.S"] == ["–", "–", "8", "8"]
    index = json.loads((reported / "results/digits/train/runs.json").read_text(encoding="utf-8"))
    for run in index:
        assert Elements(page).table("Every run on digits")[run["name"]][-1] == run["key"]
    record = json.loads((reported / "results/digits/train/mn-seed0/run.json").read_text(encoding="utf-8"))
    surroundings = Elements(page).table("What the runs were computed on")
    assert surroundings["torch"] == [record["versions"]["torch"]]
    assert surroundings["machine"] == [record["machine"]]


def test_page_loads_nothing(page: str) -> None:
    loads = [
        (tag, value)
        for tag, attributes in Elements(page).found
        for name, value in attributes.items()
        if name in ("src", "href", "srcset", "data", "action", "xlink:href") and value
    ]
    assert loads
    for tag, address in loads:
        assert address.startswith(("data:image/png;base64,", "#")), (tag, address[:60])
    assert not re.search(r"url\(|@import|<script|<link|<iframe", page)
    assert "default-src 'none'" in page


def test_page_can_be_heard(page: str) -> None:
    elements = Elements(page).found
    assert ("html", {"lang": "en"}) in elements
    figures = [attributes for tag, attributes in elements if tag == "svg"]
    assert all(a.get("aria-label") if a.get("role") == "img" else a.get("aria-hidden") for a in figures)
    assert all("scope" in attributes for tag, attributes in elements if tag == "th")
    identifiers = [attributes["id"] for _, attributes in elements if "id" in attributes]
    assert len(identifiers) == len(set(identifiers))
    targets = {a["href"] for tag, a in elements if tag == "a"}
    assert targets <= {f"#{identifier}" for identifier in identifiers}


def test_same_results_give_the_same_bytes(project: Path, reported: Path) -> None:
    shutil.rmtree(project / "report")
    report(project)
    for name in ("index.html", "metrics.json", "results.json"):
        assert (project / "report" / name).read_bytes() == (reported / "report" / name).read_bytes()


def test_only_the_data_sets_of_the_parameters_are_reported(project: Path) -> None:
    set_params(project, datasets=["diabetes"])
    report(project)
    assert list(json.loads((project / "report/metrics.json").read_text(encoding="utf-8"))) == ["diabetes"]
    assert "spiral" not in (project / "report/index.html").read_text(encoding="utf-8")


def test_methods_without_curves_and_dictionaries_are_reported(project: Path) -> None:
    set_params(project, datasets=["diabetes"], methods=["knn"])
    for stage in (train, evaluate, export):
        stage(project, "diabetes")
    report(project)
    page = (project / "report/index.html").read_text(encoding="utf-8")
    assert list(Elements(page).table("Methods on diabetes")) == ["", "kNN"]
    assert "<figure>" not in page


@pytest.mark.parametrize(
    ("missing", "command"),
    [
        ("results/digits/train/runs.json", "pipeline train digits"),
        ("results/digits/metrics.json", "pipeline evaluate digits"),
        ("results/digits/evaluation/dataset.json", "pipeline evaluate digits"),
        ("results/digits/dictionary/index.json", "pipeline export digits"),
    ],
)
def test_missing_results_are_named_with_the_command_that_makes_them(
    project: Path, reported: Path, missing: str, command: str
) -> None:
    (project / missing).unlink()
    with pytest.raises(MNError) as error:
        report(project)
    assert str(error.value) == f"{project / missing}: no such file; run: {command}"
    kept = (project / "report/index.html").read_bytes()
    assert kept == (reported / "report/index.html").read_bytes(), "the old report stays whole"


def test_results_of_other_runs_are_refused(project: Path) -> None:
    index = project / "results/digits/evaluation/runs.json"
    rows = json.loads(index.read_text(encoding="utf-8"))
    rows[0]["key"] = "0" * 20
    index.write_text(json.dumps(rows), encoding="utf-8")
    with pytest.raises(MNError, match=r"not of the runs trained last; run: pipeline evaluate digits$"):
        report(project)


def test_dictionaries_of_other_runs_are_refused(project: Path) -> None:
    folder = project / "results/digits/dictionary"
    (folder / "mn-seed0.safetensors").unlink()
    shutil.copy(folder / "mn-seed1.safetensors", folder / "mn-seed0.safetensors")
    with pytest.raises(MNError, match=r"not of the runs trained last; run: pipeline export digits$"):
        report(project)


def test_wrong_paper_tables_are_one_line(project: Path) -> None:
    (project / "data/paper_tables.yaml").write_text("classification: {}\nregression: {gom: {mn: [1]}}\n")
    with pytest.raises(MNError, match=r"paper_tables\.yaml: regression\.gom\.mn\.1: ") as error:
        report(project)
    assert "\n" not in str(error.value)


# What the page itself cannot tell without scripts, asked by a test's own script in a copy of it. The copy is
# shown in a frame, because a browser's window is at least 500 pixels wide and a phone's is not.
PROBE = """<script>
addEventListener("load", async () => {
  const images = [...document.querySelectorAll("image, img")];
  const decoded = await Promise.all(images.map(i => i.decode().then(() => 1, () => 0)));
  const drawn = [...document.querySelectorAll("svg.plot")].map(s => s.getBoundingClientRect());
  parent.postMessage(JSON.stringify({
    width: innerWidth,
    overflow: document.documentElement.scrollWidth - document.documentElement.clientWidth,
    images: images.length, decoded: decoded.reduce((a, b) => a + b, 0),
    plots: drawn.filter(r => r.width > 200 && r.height > 100).length,
    tables: document.querySelectorAll("table").length,
    loaded: performance.getEntriesByType("resource").filter(r => !r.name.startsWith("data:")).length,
  }), "*");
});
</script>"""
FRAME = """<!DOCTYPE html><body><script>
addEventListener("message", event => { document.body.dataset.probe = event.data; });
</script><iframe src="report.html" width="WIDTH" height="900" style="border: 0"></iframe>"""


@pytest.fixture
def chromium(tmp_path: Path) -> list[str]:
    """The browser's command, with a profile of its own and no way to a network."""
    browser = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if browser is None:
        pytest.skip("no chromium here to open the report in")
    return [
        browser,
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-quic",
        "--no-first-run",
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
        "--host-resolver-rules=MAP * ~NOTFOUND",
        f"--user-data-dir={tmp_path / 'profile'}",
        "--virtual-time-budget=10000",
    ]


@pytest.mark.parametrize("width", [1100, 390], ids=["desktop", "phone"])
def test_browser_shows_every_table_and_figure(
    page: str, chromium: list[str], tmp_path: Path, width: int
) -> None:
    allowed = page.replace("default-src 'none'", "default-src 'none'; script-src 'unsafe-inline'", 1)
    folder = tmp_path / "a report"
    folder.mkdir()
    (folder / "report.html").write_text(allowed.replace("</body>", f"{PROBE}</body>"), encoding="utf-8")
    (folder / "frame.html").write_text(FRAME.replace("WIDTH", str(width)), encoding="utf-8")
    command = [*chromium, "--window-size=1200,1000", "--dump-dom", (folder / "frame.html").as_uri()]
    probe = None
    for _ in range(5):  # virtual time does not wait for images to be decoded: a busy machine can be late
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
        probe = re.search(r'data-probe="([^"]*)"', done.stdout)
        if probe:
            break
    assert probe, "the page did not finish loading"
    elements = Elements(page)
    images = len([tag for tag, _ in elements.found if tag == "image"])
    assert images == 2, "one for each moment that was kept"
    assert json.loads(unescape(probe.group(1))) == {
        "width": width,
        "overflow": 0,
        "images": images,
        "decoded": images,
        "plots": len([a for _, a in elements.found if a.get("class") == "plot"]),
        "tables": len(elements.tables),
        "loaded": 0,
    }
