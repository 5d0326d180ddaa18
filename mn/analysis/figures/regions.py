"""Decision regions on points in the plane, with the learned neighbours and the way they came (Fig. 3)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import h5py
import numpy as np

from mn.analysis.figures.palette import CLASS_RGB, legend_list
from mn.analysis.figures.svg import dots, number, picture, png_uri, polyline, tag, text

_SIDE, _TOP = 340.0, 26.0
_LEVELS = 16  # steps of the tint: enough to look smooth, few enough for a small picture
_TINT = 0.36  # opacity where the model is sure


@dataclass(frozen=True)
class Moment:
    """What a model was after ``iteration`` steps: class 1's probability ``(R, R)`` and its dictionary."""

    iteration: int
    probability: np.ndarray
    keys: np.ndarray
    values: np.ndarray


@dataclass(frozen=True)
class Regions:
    """The moments of one run, in order, and the test points ``x (N, 2)``, ``y (N,)``."""

    run: str
    half_width: float
    moments: list[Moment]
    x: np.ndarray
    y: np.ndarray

    @classmethod
    def read(cls, path: Path) -> Regions:
        """What :func:`mn.analysis.regions.write_regions` wrote."""
        with h5py.File(path, "r") as file:
            groups = sorted(file["moments"].items(), key=lambda item: int(item[0]))
            return cls(
                run=str(file.attrs["run"]),
                half_width=float(file.attrs["half_width"]),
                moments=[
                    Moment(int(name), group["probability"][:], group["keys"][:], group["values"][:])
                    for name, group in groups
                ],
                x=file["test/x"][:],
                y=file["test/y"][:],
            )


def three_moments(iterations: Sequence[int]) -> list[int]:
    """The first, the one nearest to an eighth of the last, the last; fewer if they coincide."""
    last = iterations[-1]
    eighth = min(iterations, key=lambda iteration: abs(iteration - last / 8))
    return sorted({iterations[0], eighth, last})


def region_panels(regions: Regions) -> list[str]:
    """A panel for each of :func:`three_moments`."""
    chosen = three_moments([moment.iteration for moment in regions.moments])
    return [_panel(regions, iteration) for iteration in chosen]


def region_legend(classes: Sequence[str]) -> str:
    """An HTML list of what is in the panels, with the classes' names."""
    marks = [
        (tag("path", d=_disc(14, 6), class_="key class-0"), f"learned neighbour, {classes[0]}"),
        (tag("path", d=_triangle(14, 7), class_="key class-1"), f"learned neighbour, {classes[1]}"),
        (tag("path", d=polyline([(1, 6), (27, 6)]), class_="way"), "its way so far"),
        (tag("path", d=dots([(6, 4), (12, 9)]), class_="points class-0")
         + tag("path", d=dots([(17, 4), (23, 8)]), class_="points class-1"), "test points, by true class"),
    ]  # fmt: skip
    return legend_list((mark, words, "") for mark, words in marks)


def _panel(regions: Regions, iteration: int) -> str:
    past = [moment for moment in regions.moments if moment.iteration <= iteration]
    now = past[-1]
    scale = _SIDE / (2 * regions.half_width)

    def place(points: np.ndarray) -> np.ndarray:
        """Plane to paper: y grows downwards there."""
        inside = np.clip(points, -regions.half_width, regions.half_width)
        return np.stack([(inside[:, 0] + regions.half_width) * scale,
                         (regions.half_width - inside[:, 1]) * scale + _TOP], axis=1)  # fmt: skip

    ways = np.stack([place(moment.keys) for moment in past], axis=1)  # (S, moments, 2)
    classes = now.values.argmax(1)
    content = text(f"Iteration {iteration:,}", 2, 16, class_="title")
    content += tag("rect", x=0, y=_TOP, width=_SIDE, height=_SIDE, class_="frame")
    content += tag("image", x=0, y=_TOP, width=_SIDE, height=_SIDE, href=png_uri(_tint(now.probability)))
    for label in (0, 1):
        content += tag("path", d=dots(place(regions.x[regions.y == label])), class_=f"points class-{label}")
    if len(past) > 1:
        content += tag("path", d="".join(polyline(way) for way in ways), class_="way")
    content += tag("path", d="".join(_disc(*key) for key in ways[classes == 0, -1]), class_="key class-0")
    content += tag("path", d="".join(_triangle(*key) for key in ways[classes == 1, -1]), class_="key class-1")
    return picture(content, _SIDE, _SIDE + _TOP, _description(regions, now, len(past)))


def _description(regions: Regions, now: Moment, seen: int) -> str:
    grid = len(now.probability)
    cells = ((regions.x + regions.half_width) / (2 * regions.half_width) * (grid - 1)).round().astype(int)
    cells = cells.clip(0, grid - 1)
    right = (now.probability[cells[:, 1], cells[:, 0]] > 0.5) == regions.y
    ways = f", with dotted lines from their {seen} kept positions" if seen > 1 else ""
    return (
        f"Plane tinted by predicted class after {now.iteration} iterations; about {100 * right.mean():.0f} % "
        f"of the test points lie in their class's region. {len(now.keys)} learned neighbours are marked by "
        f"class, discs and triangles{ways}."
    )


def _tint(probability: np.ndarray) -> np.ndarray:
    """RGBA: the likelier class's colour, the more opaque the surer. Top row first."""
    sure = np.round(2 * (probability[::-1] - 0.5) * _LEVELS) / _LEVELS  # -1 … 1
    colours = np.array(CLASS_RGB, np.uint8)[(sure > 0).astype(int)]  # (R, R, 3)
    colours[sure == 0] = 0
    opacity = np.round(np.abs(sure) * _TINT * 255).astype(np.uint8)
    return np.concatenate([colours, opacity[..., None]], axis=2)


def _disc(x: float, y: float, radius: float = 4.2) -> str:
    half = f"a{number(radius)} {number(radius)} 0 1 0"
    return f"M{number(x - radius)} {number(y)}{half} {number(2 * radius)} 0{half} {number(-2 * radius)} 0Z"


def _triangle(x: float, y: float, size: float = 5.4) -> str:
    corners = [(x, y - size), (x + 0.87 * size, y + size / 2), (x - 0.87 * size, y + size / 2)]
    return polyline(corners) + "Z"
