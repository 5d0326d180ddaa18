"""A row of dots for a table's cell: the single runs behind a mean."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from mn.analysis.figures.palette import family
from mn.analysis.figures.svg import dots, tag

_WIDTH, _HEIGHT, _EDGE = 132.0, 18.0, 6.0


def strip(method: str, values: Sequence[float], *, low: float, high: float) -> str:
    """The runs as dots and their mean as a stroke, on a scale from ``low`` to ``high``.

    It repeats what the table and its list of runs say in figures, so a screen reader passes it over.
    """
    span = (high - low) or 1.0
    middle = _HEIGHT / 2
    places = [_EDGE + (value - low) / span * (_WIDTH - 2 * _EDGE) for value in values]
    content = tag("line", x1=0, x2=_WIDTH, y1=middle, y2=middle, class_="grid")
    mean = fmean(places)
    content += tag("line", x1=mean, x2=mean, y1=2, y2=_HEIGHT - 2, class_="mean")
    content += tag("path", d=dots((place, middle) for place in places), class_="dots")
    box = f"0 0 {_WIDTH:g} {_HEIGHT:g}"
    return tag("svg", content, class_=f"strip m-{family(method)}", viewBox=box, aria_hidden="true")
