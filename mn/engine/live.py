"""The figures of every epoch, written while the runs go on, for ``dvc plots`` and editors that show it.

``<folder>/plots/custom/<figure>.json``   one plot per figure, a line per run
``<folder>/metrics.json``                 each run's figures of its last epoch

They are written by DVCLive, which is told to do nothing else: no experiment, no dvc.yaml, no network.
"""

from __future__ import annotations

import logging
import math
import os
import shutil
import sys
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from mn.engine.event import Event
from mn.engine.progress import Clock, PlannedRun

_AXES = ("epoch", "iteration")
_SECONDS_BETWEEN = 2.0
_SHARE_OF_TIME = 0.05


class LiveMetrics:
    """Writes the curves of a stage's runs to a folder. Call it with every event, inside ``with``.

    Nothing is written outside a DVC project. Should writing fail, one line on standard error says so and
    no more is written: the runs matter more.
    """

    def __init__(self, folder: Path, planned: Sequence[PlannedRun], *, clock: Clock = time.monotonic) -> None:
        self._folder = folder
        self._methods = {run.name: run.method for run in planned}
        self._clock = clock
        self._rows: dict[str, list[dict[str, float]]] = {run.name: [] for run in planned}
        self._live: Any = None
        self._due = -math.inf
        # DVCLive looks for the project of the working directory, and would make one of any git repository.
        project = _dvc_project(folder)
        self._on = project is not None and project == _dvc_project(Path.cwd())

    def __enter__(self) -> LiveMetrics:
        if self._on:
            shutil.rmtree(self._folder, ignore_errors=True)  # of the training before, maybe of other runs
        return self

    def __call__(self, event: Event) -> None:
        if event.what == "start" or event.history:
            self._rows[event.run] = list(event.history)
        if event.figures:
            self._rows[event.run].append(event.figures)
        if self._on and (event.figures or event.history) and self._clock() >= self._due:
            with self._or_off():
                self._write()

    def __exit__(self, *_: object) -> None:
        if self._on and any(self._rows.values()):
            with self._or_off():
                self._write()
                self._live.end()

    @contextmanager
    def _or_off(self) -> Iterator[None]:
        """Whatever goes wrong inside is told of in one line, and nothing is written any more."""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # deprecations inside DVC are no concern of a user
                yield
        except Exception as error:  # noqa: BLE001 - a run of days must not end for the sake of its curves
            self._on = False
            reason = " ".join(str(error).split()) or type(error).__name__
            sys.stderr.write(f"no more live metrics in {self._folder}: {reason}\n")

    def _write(self) -> None:
        if self._live is None:
            self._live = _open(self._folder)
        began = self._clock()
        figures = dict.fromkeys(key for rows in self._rows.values() for row in rows for key in row)
        for figure in figures:
            if figure not in _AXES:
                self._live.log_plot(figure, self._points(figure), x="epoch", y=figure)
        for run, rows in self._rows.items():
            for figure, value in rows[-1].items() if rows else ():
                self._live.log_metric(f"{run}/{figure}", value, plot=False)
        self._live.step = max(int(row["epoch"]) for rows in self._rows.values() for row in rows[-1:])
        self._live.next_step()
        # Each file is written whole: the more there is to write, the rarer.
        now = self._clock()
        self._due = now + max(_SECONDS_BETWEEN, (now - began) / _SHARE_OF_TIME)

    def _points(self, figure: str) -> list[dict[str, float | str]]:
        """The figure comes last: that is the column that DVC draws when it is not told of one."""
        return [
            {"run": run, "method": self._methods[run], "epoch": row["epoch"], figure: row[figure]}
            for run, rows in self._rows.items()
            for row in rows
            if math.isfinite(row.get(figure, math.nan))  # JSON has no other numbers
        ]


def _open(folder: Path) -> Any:
    """A DVCLive logger that only writes below ``folder``, under ``dvc repro`` and ``dvc exp run`` too."""
    from dvclive.live import Live  # takes a second, with all of DVC

    # Says for instance that an experiment of this name exists, which is for whoever saves one.
    logging.getLogger("dvclive").setLevel(logging.ERROR)
    before = os.environ.get("DVC_STUDIO_OFFLINE")
    os.environ["DVC_STUDIO_OFFLINE"] = "true"  # read once, when a logger is made
    try:
        return Live(str(folder), report=None, save_dvc_exp=False, dvcyaml=None, monitor_system=False)
    finally:
        del os.environ["DVC_STUDIO_OFFLINE"]
        if before is not None:
            os.environ["DVC_STUDIO_OFFLINE"] = before


def _dvc_project(path: Path) -> Path | None:
    """The folder of the DVC project that a path is in."""
    path = path.resolve()
    return next((folder for folder in (path, *path.parents) if (folder / ".dvc").is_dir()), None)
