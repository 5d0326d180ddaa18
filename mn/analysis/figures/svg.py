"""Writing SVG: elements, paths, and small pictures as PNG inside it."""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Iterable, Sequence
from html import escape

import numpy as np

Attribute = str | float


def tag(name: str, content: str = "", **attributes: Attribute) -> str:
    """An element. ``class_`` and ``stroke_width`` become ``class`` and ``stroke-width``; "" is left out."""
    written = "".join(
        f' {key.strip("_").replace("_", "-")}="{escape(_text(value))}"'
        for key, value in attributes.items()
        if value != ""
    )
    return f"<{name}{written}>{content}</{name}>"


def text(content: str, x: float, y: float, **attributes: Attribute) -> str:
    return tag("text", escape(content), x=x, y=y, **attributes)


def picture(content: str, width: float, height: float, description: str) -> str:
    """A whole drawing. ``description`` is what someone hears who does not see it."""
    box = f"0 0 {number(width)} {number(height)}"
    return tag("svg", content, class_="plot", viewBox=box, role="img", aria_label=description)


def polyline(points: Iterable[Sequence[float]]) -> str:
    """Path data through the points."""
    return "M" + "L".join(f"{number(x)} {number(y)}" for x, y in points)


def dots(points: Iterable[Sequence[float]]) -> str:
    """Path data of lines without length: round caps make each a dot, at a tenth of a circle's size."""
    return "".join(f"M{number(x)} {number(y)}h0" for x, y in points)


def number(value: float) -> str:
    """Up to two decimals, as short as possible."""
    short = f"{value:.2f}".rstrip("0").rstrip(".")
    return "0" if short == "-0" else short


def png_uri(rgba: np.ndarray) -> str:
    """A ``data:`` address of an image ``(H, W, 4)`` uint8."""
    height, width, _ = rgba.shape
    rows = np.concatenate([np.zeros((height, 1), np.uint8), rgba.reshape(height, -1)], axis=1)
    header = struct.pack(">IIBBBBB", width, height, 8, 6, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(rows.tobytes(), 9)), (b"IEND", b""))
    png = b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in chunks
    )
    return "data:image/png;base64," + base64.b64encode(png).decode("ascii")


def _text(value: Attribute) -> str:
    return value if isinstance(value, str) else number(value)
