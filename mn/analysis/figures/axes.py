"""Axes: from numbers to places on the paper, and the ticks between them."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from mn.analysis.figures.svg import picture, tag, text

WIDTH, HEIGHT = 350.0, 232.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 46.0, 340.0, 34.0, 192.0


@dataclass(frozen=True)
class Axis:
    """The interval ``[low, high]`` laid from ``start`` to ``stop``, evenly or by logarithm."""

    low: float
    high: float
    start: float
    stop: float
    log: bool = False

    def place(self, value: float) -> float:
        low, high, value = (math.log10(v) if self.log else v for v in (self.low, self.high, value))
        return self.start + (value - low) / (high - low) * (self.stop - self.start)

    def ticks(self) -> list[float]:
        """Round numbers within the interval, about five of them."""
        if not self.log:
            return _linear_ticks(self.low, self.high)
        decades = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
        for factors in ((1,), (1, 3), (1, 2, 5)):
            ticks = self._within([factor * 10.0**e for e in decades for factor in factors])
            if len(ticks) >= 3:
                break
        return ticks[:: math.ceil(len(ticks) / 6)]

    def _within(self, ticks: list[float]) -> list[float]:
        slack = 1 + 1e-9
        return [tick for tick in ticks if self.low / slack <= tick <= self.high * slack]


def x_axis(low: float, high: float, *, log: bool = False) -> Axis:
    return Axis(low, high, _LEFT, _RIGHT, log)


def y_axis(values: Iterable[float], *, limits: tuple[float, float] | None = None) -> Axis:
    """An axis that holds the values: by logarithm where they span more than a factor of fifty.

    ``limits`` are fixed ends, and an even scale.
    """
    if limits:
        return Axis(*limits, _BOTTOM, _TOP)
    values = list(values)
    low, high = min(values), max(values)
    if low > 0 and high / low > 50:
        return Axis(low / 1.15, high * 1.15, _BOTTOM, _TOP, log=True)
    margin = 0.06 * (high - low) or 0.05 * abs(high) or 1.0
    bottom = low - margin
    return Axis(0.0 if low >= 0 > bottom else bottom, high + margin, _BOTTOM, _TOP)


def chart(title: str, x: Axis, y: Axis, content: str, *, x_label: str, description: str) -> str:
    """A drawing with its title (where a y-axis has its name), ticks and a quiet grid."""
    heading = text(title, 2, 16, class_="title")
    if y.log:
        heading += text("log scale", WIDTH - 10, 16, class_="note", text_anchor="end")
    grid = "".join(
        tag("line", x1=_LEFT, x2=_RIGHT, y1=y.place(tick), y2=y.place(tick), class_="grid")
        + text(tick_text(tick), _LEFT - 6, y.place(tick) + 4, text_anchor="end")
        for tick in y.ticks()
    )
    marks = "".join(
        text(tick_text(tick), x.place(tick), _BOTTOM + 16, text_anchor="middle") for tick in x.ticks()
    )
    name = text(x_label, (_LEFT + _RIGHT) / 2, HEIGHT - 5, text_anchor="middle", class_="note")
    return picture(heading + grid + marks + name + content, WIDTH, HEIGHT, description)


def tick_text(value: float) -> str:
    """``0.02``, ``40``, ``1,000``, and powers of ten far from one as ``10⁻⁴``."""
    if value and (abs(value) >= 1e5 or abs(value) < 1e-3):
        exponent = math.floor(math.log10(abs(value)) + 1e-9)
        factor = f"{value / 10**exponent:.3g}"
        power = "10" + str(exponent).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
        return power if factor == "1" else f"{factor}·{power}"
    return f"{value:,.6g}".replace("-", "−")


def _linear_ticks(low: float, high: float) -> list[float]:
    rough = (high - low) / 5
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(m * power for m in (1, 2, 2.5, 5, 10) if m * power >= rough * 0.999)
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return [round(i * step, 12) for i in range(first, last + 1)]
