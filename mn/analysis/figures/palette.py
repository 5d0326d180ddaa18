"""What stands for a method in every figure: its name, its colour and its dash.

Colours are told apart with every common form of colour blindness and stand out from the page by at least
4.5 : 1, light or dark; the dash says the same again without colour.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from html import escape
from zlib import crc32

from mn.analysis.figures.svg import tag


@dataclass(frozen=True)
class Look:
    """A method as people read and see it."""

    label: str
    light: str  # on a light page
    dark: str  # on a dark page
    dash: str = ""


_LOOKS = {
    "knn": Look("kNN", "#9c3d74", "#e293c0", "1 3"),
    "vanilla": Look("vanilla", "#5f6773", "#aab2be", "6 3"),
    "vanilla_ifilm": Look("vanilla + iFiLM", "#a05400", "#e8a33d", "2 2"),
    "wide": Look("vanilla + layer", "#7a4a2f", "#d9a184", "4 2 1 2"),
    "maxl": Look("MAXL", "#8a6d00", "#d9c04a", "8 3 2 3"),
    # Baselines that the paper does not have.
    "hgb": Look("HGB", "#8e0000", "#ff5c5c", "10 2 2 2"),
    "tabm": Look("TabM", "#3a3a9e", "#8c9eff", "3 2 1 2"),
    "mn": Look("MN", "#0a62a9", "#62b6f0"),
    "mn_ifilm": Look("MN + iFiLM", "#00705a", "#3cc9a0", "9 2"),
}
# A row of a table that no method's name stands for, such as one of a user's own variants.
_OTHER = Look("", "#4a4a4a", "#bdbdbd", "3 3")
# Rows of one method, which share its colour, are told apart by these.
_DASHES = ("5 2", "1 2", "7 2 1 2", "3 1", "10 3", "2 4", "6 1 1 1", "4 4")
# The two classes of points in the plane: not the colours of any method.
_CLASSES = {"class-0": ("#6a46a6", "#b79cf0"), "class-1": ("#9a6a00", "#f0bd4d")}
CLASS_RGB = ((122, 84, 186), (222, 160, 20))  # the same two, midway, for a tint that suits both pages


def family(row: str) -> str:
    """The method that a row of a table is of: ``vanilla`` for ``vanilla_dot_sgd``, or ``other``.

    Rows of one method share its colour: the CSS class is ``m-<family>``.
    """
    if row in _LOOKS:
        return row
    known = [name for name in _LOOKS if row.startswith(f"{name}_")]
    return max(known, key=len, default="other")


def label(row: str) -> str:
    """The row's name in text: ``MN + iFiLM`` for ``mn_ifilm``, ``vanilla (dot, sgd)`` for a variant."""
    method = family(row)
    if method == "other":
        return row
    details = row.removeprefix(method).strip("_").replace("_", ", ")
    return f"{_LOOKS[method].label} ({details})" if details else _LOOKS[method].label


def dash(row: str) -> str:
    if row in _LOOKS:
        return _LOOKS[row].dash
    return _DASHES[crc32(row.encode()) % len(_DASHES)]


def stylesheet() -> str:
    """The rules that give ``.m-<family>`` and ``.class-<i>`` their colour as ``--c``."""
    looks = {**_LOOKS, "other": _OTHER}
    return "\n".join(
        [
            *(f".m-{name} {{ --c: {look.light}; }}" for name, look in looks.items()),
            *(f".{name} {{ --c: {light}; }}" for name, (light, _) in _CLASSES.items()),
            "@media screen and (prefers-color-scheme: dark) {",
            *(f"  .m-{name} {{ --c: {look.dark}; }}" for name, look in looks.items()),
            *(f"  .{name} {{ --c: {dark}; }}" for name, (_, dark) in _CLASSES.items()),
            "}",
        ]
    )


def legend(methods: Iterable[str]) -> str:
    """An HTML list of methods, each with a piece of its line."""
    return legend_list(
        (
            tag("line", x1=1, y1=6, x2=27, y2=6, class_="mean", stroke_dasharray=dash(method)),
            label(method),
            f"m-{family(method)}",
        )
        for method in methods
    )


def legend_list(items: Iterable[tuple[str, str, str]]) -> str:
    """An HTML list of (a drawing 28 wide and 12 high, words, CSS class)."""
    rows = []
    for drawing, words, css_class in items:
        sample = tag("svg", drawing, viewBox="0 0 28 12", width=28, height=12, aria_hidden="true")
        rows.append(tag("li", sample + escape(words), class_=css_class))
    return tag("ul", "".join(rows), class_="legend")
