"""``python -m bench``: the table of what the method costs, on this machine.

Times are medians of steps taken in turns in this process; memory is the peak of a process of its
own. Everything is also written to ``bench/results/bench.json``.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
from pathlib import Path
from typing import Any

import torch

from bench import augmentation, cases, measure

RESULTS = Path(__file__).parent / "results" / "bench.json"
GROWTH_S = [1000, 2000, 4000, 8000, 16000, 32000, 64000]
GROWTH_B = [16, 32, 64, 128, 256, 512]

# faster: the other's time over ours, at least; times: ours over the other's, at most;
# memory_ratio: what the other's step takes over what ours takes, at least; peak_gb: of the process
ROWS: list[dict[str, Any]] = [
    {"case": "mlp train", "against": "vmap", "rounds": 5, "faster": 60, "memory_ratio": 5},
    {"case": "mlp inference", "against": "vmap", "rounds": 5, "faster": 200},
    {"case": "table train", "against": "vanilla", "rounds": 15, "times": 12},
    {"case": "table inference", "against": "vanilla", "rounds": 15, "times": 10},
    {"case": "logits 5000 10", "against": "vmap", "rounds": 15, "faster": 2},
    {"case": "logits 10000 100", "against": "vmap", "rounds": 5, "faster": 2, "peak_gb": 1.5},
    {"case": "logits 10000 100", "against": "autograd", "rounds": 5, "faster": 2},
    {"case": "model predict 5000 10", "against": "vanilla", "rounds": 15, "times": 1.10},
    {"case": "model predict 10000 100", "against": "vanilla", "rounds": 15, "times": 1.5},
    {"case": "model train 5000 10", "against": "vanilla", "rounds": 9, "times": 1.35},
    {"case": "convnet4 train 5000 10", "against": "vanilla", "rounds": 9, "times": 1.5},
]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--only", help="cases whose name contains this (also: growth, augmentation)")
    parser.add_argument("--peak-of", nargs=2, metavar=("CASE", "VARIANT"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    torch.set_num_threads(measure.THREADS)
    if args.peak_of:
        case, variant = args.peak_of
        print(json.dumps(measure.peak_here(cases.CASES[case]()[variant])))
        return 0

    wanted = [row for row in ROWS if args.only is None or args.only in row["case"]]
    result: dict[str, Any] = {"machine": measure.machine(), "rows": [], "growth": [], "augmentation": []}
    print(", ".join(f"{name} {value}" for name, value in result["machine"].items()))
    print(f"\n{'B=128':<26}{'mn':>10}{'against':>21}{'ratio':>9}{'target':>10}")
    for row in wanted:
        result["rows"].append(run(row))
        print(line(result["rows"][-1]), flush=True)
    if args.only is None or args.only in "growth":
        result["growth"] = [growth("S", GROWTH_S), growth("B", GROWTH_B)]
    if args.only is None or args.only in "augmentation":
        print("\nthe paper's augmentation of 32×32 images (crop, flip, AutoAugment, cutout)")
        result["augmentation"] = augmentation.rows()
        for row in result["augmentation"]:
            print(augmentation.line(row), flush=True)
    if args.only is None:
        result["machine"]["load_average_end"] = measure.machine()["load_average"]
        RESULTS.parent.mkdir(parents=True, exist_ok=True)
        RESULTS.write_text(json.dumps(result, indent=2) + "\n")
        print(f"\nwritten to {RESULTS.relative_to(Path.cwd())}")
    return 0


def run(row: dict[str, Any]) -> dict[str, Any]:
    """One row of the table: times, and peaks where there is a target for them."""
    against = row["against"]
    variants = cases.CASES[row["case"]]()
    times = measure.seconds(row["rounds"], mn=variants["mn"](), **{against: variants[against]()})
    done = {**row, "mn": measure.summary(times["mn"]), against: measure.summary(times[against])}
    done["ratio"] = done[against]["median_s"] / done["mn"]["median_s"]
    # of neighbouring turns, which a busy moment hits alike
    pairs = zip(times["mn"], times[against], strict=True)
    done["ratio_of_pairs"] = statistics.median(theirs / ours for ours, theirs in pairs)
    done["met"] = done["ratio"] >= row["faster"] if "faster" in row else True
    if "times" in row:
        done["met"] = 1 / done["ratio"] <= row["times"]
    if "memory_ratio" in row or "peak_gb" in row:
        done["memory"] = {v: measure.peak_of(row["case"], v) for v in ("mn", against)}
        ours, theirs = (done["memory"][v] for v in ("mn", against))
        done["met"] &= ours["peak_bytes"] / 1e9 < row.get("peak_gb", math.inf)
        done["met"] &= theirs["step_bytes"] >= row.get("memory_ratio", 0) * ours["step_bytes"]
    return done


def line(row: dict[str, Any]) -> str:
    """A row as text."""
    against = row["against"]
    if "times" in row:
        ratio, target = f"{1 / row['ratio']:.2f}x", f"<= {row['times']:.2f}x"
    else:
        ratio, target = f"1/{row['ratio']:.1f}", f"<= 1/{row['faster']}"
    memory = "".join(
        f"\n    memory, {name}: {m['step_bytes'] / 1e6:.0f} MB for the step, "
        f"process peak {m['peak_bytes'] / 1e9:.2f} GB"
        for name, m in row.get("memory", {}).items()
    )
    ours, theirs = (f"{row[v]['median_s'] * 1e3:.1f} ms" for v in ("mn", against))
    met = "" if row["met"] else "  NOT MET"
    start = f"{row['case']:<26}{ours:>10}{theirs + ' ' + against:>21}"
    return f"{start}{ratio:>9}{target:>10}{met}{memory}"


def growth(letter: str, sizes: list[int]) -> dict[str, Any]:
    """Time of a training step of the cosine head as S or B grows, and the line through it."""
    medians = []
    for size in sizes:
        variants = cases.logits(size, 10) if letter == "S" else cases.logits(5000, 10, batch=size)
        medians.append(statistics.median(measure.seconds(5, mn=variants["mn"]())["mn"]))
    line = statistics.linear_regression(sizes, medians)
    r2 = statistics.correlation(sizes, medians) ** 2
    fit = f"{line.intercept * 1e3:.0f} ms + {line.slope * 1e6:.1f} µs each, r² = {r2:.4f}"
    print(f"\ntrain step of the cosine head, C=10, as {letter} grows: {fit}")
    for size, median in zip(sizes, medians, strict=True):
        print(f"  {letter} = {size:<6} {median * 1e3:8.1f} ms", flush=True)
    found = {"intercept_s": line.intercept, "slope_s": line.slope, "r2": r2}
    return {"over": letter, "sizes": sizes, "median_s": medians, **found}


if __name__ == "__main__":
    sys.exit(main())
