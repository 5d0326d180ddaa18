"""Training curves: one panel per figure, one line per method."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from mn.analysis.curves import History
from mn.analysis.figures.axes import Axis, chart, x_axis, y_axis
from mn.analysis.figures.palette import dash, family, label
from mn.analysis.figures.svg import polyline, tag

_PANELS = {
    "train_loss": "Training loss",
    "val_loss": "Validation loss",
    "val_accuracy": "Validation accuracy, %",
}


def training_panels(histories: Sequence[tuple[str, History]]) -> list[str]:
    """Panels of training loss, validation loss and, for classification, validation accuracy.

    A thick line is the mean over a method's runs and a band their range, as far as all of them went; where
    some stopped early the others go on as thin lines.
    """
    return [
        _panel(figure, title, histories)
        for figure, title in _PANELS.items()
        if any(figure in row for _, history in histories for row in history)
    ]


def _panel(figure: str, title: str, histories: Sequence[tuple[str, History]]) -> str:
    curves: dict[str, list[list[float]]] = {}
    for method, history in histories:
        curves.setdefault(method, []).append([row[figure] for row in history])
    values = [value for runs in curves.values() for run in runs for value in run]
    x = x_axis(1, max(2, *(len(run) for runs in curves.values() for run in runs)))
    y = y_axis(values)
    content = "".join(_method(method, runs, x, y) for method, runs in curves.items())
    ends = "; ".join(f"{label(method)} {_end(runs)}" for method, runs in curves.items())
    description = (
        f"{title} by epoch, a line per method. Mean at the last epoch that all runs reached: {ends}."
    )
    return chart(title, x, y, content, x_label="epoch", description=description)


def _method(method: str, runs: list[list[float]], x: Axis, y: Axis) -> str:
    common = min(map(len, runs))
    at = [x.place(epoch + 1) for epoch in range(max(map(len, runs)))]
    columns = [[run[epoch] for run in runs] for epoch in range(common)]
    upper = [(at[i], y.place(max(column))) for i, column in enumerate(columns)]
    lower = [(at[i], y.place(min(column))) for i, column in enumerate(columns)]
    mean = [(at[i], y.place(fmean(column))) for i, column in enumerate(columns)]
    rest = [
        [(at[i], y.place(run[i])) for i in range(common - 1, len(run))] for run in runs if len(run) > common
    ]
    content = tag("path", d=polyline(upper + lower[::-1]) + "Z", class_="band")
    content += "".join(tag("path", d=polyline(points), class_="run") for points in rest)
    content += tag("path", d=polyline(mean), class_="mean", stroke_dasharray=dash(method))
    return tag("g", content, class_=f"m-{family(method)}")


def _end(runs: list[list[float]]) -> str:
    common = min(map(len, runs))
    return f"{fmean(run[common - 1] for run in runs):.4g} at epoch {common}"
