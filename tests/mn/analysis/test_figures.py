"""Figures: well-formed SVG that says what it shows, and draws what it is given."""

from __future__ import annotations

import base64
import io
import json
import re
from pathlib import Path
from typing import get_args
from xml.etree import ElementTree as ET

import h5py
import numpy as np
import pytest
from matplotlib import pyplot as plt

from mn.analysis.curves import History
from mn.analysis.figures import (
    DictionaryUse,
    Moment,
    Regions,
    dictionary_panels,
    family,
    label,
    legend,
    region_legend,
    region_panels,
    strip,
    stylesheet,
    three_moments,
    training_panels,
)
from mn.analysis.figures.svg import png_uri, tag
from mn.engine.config import Method
from tests.conftest import ROOT


def parse(drawing: str) -> ET.Element:
    return ET.fromstring(drawing)  # noqa: S314 our own drawing


def history(epochs: int, start: float) -> History:
    return [{"epoch": e + 1, "train_loss": start / (e + 1), "val_loss": start} for e in range(epochs)]


def paths(drawing: str, css_class: str) -> list[str]:
    return [path.attrib["d"] for path in parse(drawing).iter("path") if path.attrib["class"] == css_class]


def use(method: str = "mn", size: int = 6) -> DictionaryUse:
    weight = np.arange(1, size + 1) / (size * (size + 1) / 2)
    return DictionaryUse(method, f"{method}-seed0", weight, np.array([1.0, 2.0, 3.0]), 1.0, 0.05)


def regions() -> Regions:
    moments = [
        Moment(i, np.full((4, 4), 0.9), np.array([[0.0, i / 100], [1.0, 1.0]]), np.eye(2))
        for i in (0, 10, 80)
    ]
    return Regions("mn-seed0", 2.0, moments, np.array([[0.5, 0.5], [-0.5, 0.0]]), np.array([1, 0]))


@pytest.mark.parametrize(
    "panels",
    [
        training_panels([("vanilla", history(3, 2.0)), ("mn", history(3, 1.0))]),
        dictionary_panels([use(), use("mn_ifilm", 9)]),
        region_panels(regions()),
    ],
    ids=["curves", "dictionary", "regions"],
)
def test_every_panel_is_well_formed_and_described(panels: list[str]) -> None:
    assert len(panels) >= 2
    for panel in panels:
        root = parse(panel)
        assert root.attrib["role"] == "img"
        assert len(root.attrib["aria-label"]) > 40
        assert root.find("text") is not None, "a title"
        assert "nan" not in panel


def test_curves_have_a_panel_per_figure_and_a_line_per_method() -> None:
    panels = training_panels([("vanilla", history(3, 2.0)), ("mn", history(3, 1.0)), ("mn", history(3, 1.2))])
    assert [parse(panel).findtext("text") for panel in panels] == ["Training loss", "Validation loss"]
    assert len(paths(panels[0], "mean")) == 2
    assert "MN 0.3667 at epoch 3" in panels[0]


def test_curves_end_their_mean_where_the_first_run_ended() -> None:
    panel = training_panels([("mn", history(2, 1.0)), ("mn", history(5, 1.0))])[0]
    assert paths(panel, "mean")[0].count("L") == 1
    (rest,) = paths(panel, "run")
    assert rest.count("L") == 3


def test_curves_of_a_single_epoch_are_drawn() -> None:
    assert "nan" not in training_panels([("mn", history(1, 1.0))])[0]


def test_moments_are_first_an_eighth_and_last() -> None:
    assert three_moments([0, 50, 100, 200, 400, 800, 1600, 3200, 6400]) == [0, 800, 6400]
    assert three_moments([0, 2]) == [0, 2]
    assert three_moments([7]) == [7]


def test_neighbours_are_marked_by_class_and_leave_their_way() -> None:
    first, _, last = region_panels(regions())
    for panel in (first, last):
        assert len(paths(panel, "key class-0")) == len(paths(panel, "key class-1")) == 1
        assert "a4.2" in paths(panel, "key class-0")[0], "a disc"
        assert "a" not in paths(panel, "key class-1")[0], "a triangle"
    assert paths(first, "way") == []
    assert paths(last, "way")[0].count("M") == 2, "one way per neighbour"
    assert "50 % of the test points" in first


def test_regions_are_read_back(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "regions.h5", "w") as file:
        file.attrs["run"], file.attrs["half_width"] = "mn-seed0", 2.0
        file["test/x"], file["test/y"] = regions().x, regions().y
        for moment in reversed(regions().moments):
            group = file.create_group(f"moments/{moment.iteration}")
            group["probability"], group["keys"], group["values"] = (
                moment.probability,
                moment.keys,
                moment.values,
            )
    assert [m.iteration for m in Regions.read(tmp_path / "regions.h5").moments] == [0, 10, 80]


def test_png_holds_the_pixels() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (3, 5, 4), dtype=np.uint8)
    uri = png_uri(pixels)
    decoded = plt.imread(io.BytesIO(base64.b64decode(uri.split(",", 1)[1])), format="png")
    assert np.array_equal(np.round(decoded * 255), pixels)


def test_text_is_escaped() -> None:
    assert tag("g", class_='a"b<c') == '<g class="a&quot;b&lt;c"></g>'
    assert "<b>" not in region_legend(["<b>", "&"])


def test_strip_has_a_dot_per_run() -> None:
    (path,) = parse(strip("mn", [1.0, 2.0, 2.0], low=1.0, high=2.0)).iter("path")
    assert path.attrib["d"].count("M") == 3
    assert "nan" not in strip("mn", [1.0], low=1.0, high=1.0)


def test_legend_names_methods_as_people_do() -> None:
    assert "".join(parse(legend(["vanilla_ifilm", "mn"])).itertext()) == "vanilla + iFiLMMN"


def contrast(first: str, second: str) -> float:
    """WCAG 2's contrast ratio of two colours."""

    def luminance(colour: str) -> float:
        channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    high, low = sorted((luminance(first), luminance(second)), reverse=True)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize(("part", "page"), [(0, "#fcfbf8"), (1, "#15181c")], ids=["light", "dark"])
def test_colours_stand_out_from_the_page(part: int, page: str) -> None:
    rules = stylesheet().split("@media")[part]
    colours = dict(re.findall(r"\.([\w-]+) \{ --c: (#\w{6}); \}", rules))
    assert len(colours) >= 7
    assert len(set(colours.values())) == len(colours)
    for name, colour in colours.items():
        assert contrast(colour, page) >= 4.5, name


def test_dvc_draws_methods_in_the_same_colours() -> None:
    template = json.loads((ROOT / ".dvc/plots/methods.json").read_text(encoding="utf-8"))
    scale = template["encoding"]["color"]["scale"]
    for method, colour in zip(scale["domain"], scale["range"], strict=True):
        assert f".m-{method} {{ --c: {colour}; }}" in stylesheet().split("@media")[0]


def test_every_method_of_a_run_has_a_look() -> None:
    for method in get_args(Method):
        assert family(method) == method
        assert f".m-{method} " in stylesheet()


def test_a_variant_has_its_methods_colour_and_says_what_differs() -> None:
    assert (family("vanilla_dot_sgd"), label("vanilla_dot_sgd")) == ("vanilla", "vanilla (dot, sgd)")
    assert (family("mn_ifilm_large"), label("mn_ifilm_large")) == ("mn_ifilm", "MN + iFiLM (large)")
    assert (family("mine"), label("mine")) == ("other", "mine")
    assert ".m-other " in stylesheet()
