"""The critical-difference diagram: mean ranks of methods over data sets, and which do not differ."""

from __future__ import annotations

from mn.analysis.figures.axes import WIDTH, Axis
from mn.analysis.figures.palette import family, label
from mn.analysis.figures.svg import dots, picture, tag, text
from mn.analysis.ranking import ALPHA, Ranking

_LEFT, _RIGHT = 130.0, 296.0
_CD, _AXIS, _BAR, _ROW = 40.0, 74.0, 10.0, 22.0  # heights of the two rulers; steps between bars and rows


def ranking_diagram(ranking: Ranking) -> str:
    """Ranks from the best on, a row per method; a bar joins methods that are not separated.

    After Fig. 1 of Demšar (2006), but with a row per method: names of any length fit on a narrow page.
    """
    # With few data sets the critical difference is longer than all ranks: it is drawn whole.
    x = Axis(1, max(len(ranking.ranks), 1 + ranking.cd), _LEFT, _RIGHT)
    rows = _AXIS + 12 + _BAR * len(ranking.groups)
    content = text(f"Mean rank over {ranking.n} data sets (1 = lowest error)", 2, 16, class_="title")
    content += _critical_difference(ranking.cd, x) + _ruler(len(ranking.ranks), x)
    for place, (method, rank) in enumerate(ranking.ranks.items()):
        content += _method(method, x.place(rank), f"{rank:.2f}", rows + _ROW * (place + 0.5))
    for place, group in enumerate(ranking.groups):
        ends = (x.place(ranking.ranks[group[0]]) - 3, x.place(ranking.ranks[group[-1]]) + 3)
        y = _AXIS + 10 + _BAR * place
        content += tag("line", x1=ends[0], x2=ends[1], y1=y, y2=y, class_="joined")
    return picture(content, WIDTH, rows + _ROW * len(ranking.ranks), _description(ranking))


def _critical_difference(cd: float, x: Axis) -> str:
    stop = x.place(1 + cd)
    content = tag("line", x1=x.start, x2=stop, y1=_CD, y2=_CD, class_="axis")
    for end in (x.start, stop):
        content += tag("line", x1=end, x2=end, y1=_CD - 4, y2=_CD + 4, class_="axis")
    return content + text(f"CD = {cd:.2f}", x.start - 8, _CD + 4, text_anchor="end")


def _ruler(methods: int, x: Axis) -> str:
    content = tag("line", x1=x.start, x2=x.place(methods), y1=_AXIS, y2=_AXIS, class_="axis")
    for rank in range(1, methods + 1):
        at = x.place(rank)
        content += tag("line", x1=at, x2=at, y1=_AXIS - 4, y2=_AXIS, class_="axis")
        content += text(str(rank), at, _AXIS - 8, text_anchor="middle")
    return content


def _method(method: str, at: float, rank: str, y: float) -> str:
    content = tag("line", x1=at, x2=at, y1=_AXIS, y2=y, class_="grid")
    content += tag("line", x1=_LEFT, x2=at, y1=y, y2=y, class_="grid")
    content += tag("path", d=dots([(at, y)]), class_="dots")
    content += text(label(method), 2, y + 4) + text(rank, WIDTH - 10, y + 4, text_anchor="end")
    return tag("g", content, class_=f"m-{family(method)}")


def _description(ranking: Ranking) -> str:
    ranks = "; ".join(f"{label(method)} {rank:.2f}" for method, rank in ranking.ranks.items())
    groups = "; ".join(", ".join(map(label, group)) for group in ranking.groups) or "none"
    return (
        f"Mean ranks of methods over {ranking.n} data sets, 1 is the lowest error: {ranks}. Critical "
        f"difference {ranking.cd:.2f} at level {ALPHA:g}. Methods that are not separated: {groups}."
    )
