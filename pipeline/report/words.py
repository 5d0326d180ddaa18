"""How the report writes numbers and lists."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

NBSP = "\N{NO-BREAK SPACE}"
MINUS = "\N{MINUS SIGN}"


def fixed(value: float, decimals: int, *, signed: bool = False) -> str:
    """``-0.22`` with a real minus sign, and never a ``-0.00``; ``signed`` also shows a plus."""
    shown = f"{value:{'+' if signed else ''},.{decimals}f}"
    if float(shown.replace(",", "")) == 0:
        shown = f"{0:.{decimals}f}"
    return shown.replace("-", MINUS)


def mean_std(summary: dict[str, float], decimals: int, *, signed: bool = False) -> str:
    """``99.26 ± 0.34``; the mean alone where there is one run."""
    mean = fixed(summary["mean"], decimals, signed=signed)
    if "std" not in summary:
        return mean
    return f"{mean}{NBSP}±{NBSP}{fixed(summary['std'], decimals)}"


def three_figures(value: float) -> str:
    """``0.0500``, ``4.21``, ``21.0``, ``1,270``: three figures, and all of those before the point."""
    return f"{value:,.0f}" if value >= 100 else f"{value:#.3g}"


def count(number: int, noun: str, plural: str = "") -> str:
    """``1 run``, ``3 runs``, ``2 classes``."""
    return f"{number:,}{NBSP}{noun if number == 1 else plural or noun + 's'}"


def listing(items: Sequence[str]) -> str:
    """``a``, ``a and b``, ``a, b and c``."""
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} and {items[-1]}"


def span(numbers: Sequence[int]) -> str:
    """``300``, or ``300–301`` where they differ."""
    low, high = min(numbers), max(numbers)
    return f"{low:,}" if low == high else f"{low:,}–{high:,}"


def setting(value: Any) -> str:
    """A setting as one would type it into a file of parameters."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, list):
        return f"[{', '.join(map(setting, value))}]"
    return str(value)
