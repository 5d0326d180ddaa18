"""How a learned dictionary is used: its entries' weights, and how many count for one prediction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mn.analysis.figures.axes import Axis, chart, x_axis, y_axis
from mn.analysis.figures.palette import dash, family
from mn.analysis.figures.svg import polyline, tag

_POINTS = 100  # along a line: more cannot be seen


@dataclass(frozen=True)
class DictionaryUse:
    """One run's dictionary of ``S`` entries, seen from the test part's ``N`` rows.

    Attributes:
        weight: mean attention to each entry ``(S,)``; sums to 1.
        effective: entries that really count for each prediction, ``1 / Σ_j ω_j²`` ``(N,)``.
        share_in_use: the share of entries with at least a tenth of an even share of the attention.
        alpha: the inner rate, averaged where there are several.
    """

    method: str
    run: str
    weight: np.ndarray
    effective: np.ndarray
    share_in_use: float
    alpha: float

    @property
    def size(self) -> int:
        return len(self.weight)


def dictionary_panels(uses: Sequence[DictionaryUse]) -> list[str]:
    """Two panels, a line per run: weights from the heaviest entry on, and effective neighbours."""
    return [_weights(uses), _effective(uses)]


def _weights(uses: Sequence[DictionaryUse]) -> str:
    ranks = np.linspace(0, 100, _POINTS)
    curves = []
    for use in uses:
        relative = np.interp(ranks, np.linspace(0, 100, use.size), np.sort(use.weight)[::-1] * use.size)
        # Below a thousandth of an even share an entry is as good as absent: the axis need not go there.
        curves.append(np.maximum(relative, 1e-3))
    x, y = x_axis(0, 100), y_axis([1.0, *np.concatenate(curves).tolist()])
    even = tag("line", x1=x.start, x2=x.stop, y1=y.place(1), y2=y.place(1), class_="reference")
    spans = [f"{use.run} {curve[0]:.3g} to {curve[-1]:.2g}" for use, curve in zip(uses, curves, strict=True)]
    return chart(
        "Weight of entries (1 = even share)",
        x,
        y,
        even + "".join(_line(use, ranks, curve, x, y) for use, curve in zip(uses, curves, strict=True)),
        x_label="entries, heaviest first, %",
        description=(
            "Mean attention weight of the dictionary's entries as a multiple of an even share, sorted; "
            f"heaviest to lightest entry: {'; '.join(spans)}."
        ),
    )


def _effective(uses: Sequence[DictionaryUse]) -> str:
    shares = np.linspace(0, 100, _POINTS)
    curves = [np.maximum(np.percentile(use.effective, shares), 1.0) for use in uses]
    x = x_axis(1, max(2, *(use.size for use in uses)), log=True)
    y = y_axis([], limits=(0, 100))
    medians = [f"{use.run} {np.median(use.effective):.3g} of {use.size}" for use in uses]
    return chart(
        "Predictions resting on at most so many, %",
        x,
        y,
        "".join(_line(use, curve, shares, x, y) for use, curve in zip(uses, curves, strict=True)),
        x_label="effective number of neighbours (log scale)",
        description=(
            "Share of test predictions by the effective number of neighbours they rest on; "
            f"medians: {'; '.join(medians)}."
        ),
    )


def _line(use: DictionaryUse, across: np.ndarray, up: np.ndarray, x: Axis, y: Axis) -> str:
    points = [(x.place(a), y.place(b)) for a, b in zip(across.tolist(), up.tolist(), strict=True)]
    path = tag("path", d=polyline(points), class_="mean thin", stroke_dasharray=dash(use.method))
    return tag("g", path, class_=f"m-{family(use.method)}")
