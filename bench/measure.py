"""Time by alternating what is compared; memory by the peak of a process of its own."""

from __future__ import annotations

import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

Step = Callable[[], object]
THREADS = 2


def seconds(rounds: int, **steps: Step) -> dict[str, list[float]]:
    """Wall time of each step, taken in turns so that a busy moment falls on all of them alike.

    A turn is one step, or as many as fit in a fifth of a second; its time is their median. The
    first round is not counted: it fills caches and makes the first pages.
    """
    taken: dict[str, list[float]] = {name: [] for name in steps}
    for turn in range(rounds + 1):
        for name, step in steps.items():
            times: list[float] = []
            while sum(times) < 0.2:
                start = time.perf_counter()
                step()
                times.append(time.perf_counter() - start)
            if turn > 0:
                taken[name].append(statistics.median(times))
    return taken


def summary(times: list[float]) -> dict[str, float]:
    """Median, extremes and how many."""
    return {
        "median_s": statistics.median(times),
        "min_s": min(times),
        "max_s": max(times),
        "n": len(times),
    }


def peak_bytes() -> int:
    """The most memory this process has held."""
    status = Path("/proc/self/status")
    if status.exists():
        # not ru_maxrss: Linux carries that over from the parent that started this process
        line = next(x for x in status.read_text().splitlines() if x.startswith("VmHWM"))
        return int(line.split()[1]) * 1024
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def peak_of(case: str, variant: str) -> dict[str, int]:
    """Memory of one step in a fresh process: the peak, and by how much the step raised it."""
    done = subprocess.run(  # noqa: S603  (this module, by its own name)
        [sys.executable, "-m", "bench", "--peak-of", case, variant],
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    result: dict[str, int] = json.loads(done.stdout)
    return result


def peak_here(make: Callable[[], Step]) -> dict[str, int]:
    """What ``peak_of`` asks the fresh process for."""
    step = make()
    before = peak_bytes()
    step()
    return {"step_bytes": peak_bytes() - before, "peak_bytes": peak_bytes()}


def machine() -> dict[str, Any]:
    """What the numbers depend on."""
    name = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        lines = [x for x in cpuinfo.read_text().splitlines() if x.startswith("model name")]
        name = lines[0].split(":", 1)[1].strip() if lines else name
    return {
        "cpu": name,
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "torch": torch.__version__,
        "load_average": round(os.getloadavg()[0], 2),
    }
