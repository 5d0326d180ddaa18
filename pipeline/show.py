"""What the command line shows: resolved parameters, and the run store."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from ruamel.yaml import YAML

from mn.engine.runs import key_of
from mn.engine.store import RunStore, StoredRun
from mn.errors import MNError
from mn.files import sha256
from pipeline.params import plan, read_params
from pipeline.paths import processed_file, store_folder
from pipeline.search import named_runs
from pipeline.train import trained_runs


def show_params(root: Path, dataset: str) -> None:
    """Every setting of every run as YAML, by method: its groups of settings, then its runs' names."""
    planned = plan(root, dataset)
    methods: dict[str, Any] = {}
    for run in planned.runs:
        groups = {key: value for key, value in run.identity().items() if isinstance(value, dict)}
        methods.setdefault(run.row, {**groups, "runs": []})["runs"].append(run.name)
    yaml = YAML()
    yaml.default_flow_style = False
    yaml.dump(
        {
            "dataset": dataset,
            "data": planned.data.model_dump(),
            "execution": planned.execution.model_dump(),
            "methods": methods,
            "search": [stage.model_dump(exclude_defaults=True) for stage in planned.search],
        },
        sys.stdout,
    )


def show_runs(root: Path) -> None:
    """The store as a table, oldest first."""
    store = RunStore(store_folder(root))
    entries = store.entries()
    console = Console()
    if not console.is_terminal:
        console.width = 160  # a pipe has no width: keep the parameters on the line
    if not entries:
        console.print(f"no runs in {store.root}")
        return
    referred = _referred(root)
    table = Table(box=None, pad_edge=False)
    table.add_column("key", no_wrap=True)
    table.add_column("data set", no_wrap=True)
    table.add_column("run", no_wrap=True)
    table.add_column("state", no_wrap=True)
    table.add_column("age", justify="right", no_wrap=True)
    table.add_column("size", justify="right", no_wrap=True)
    table.add_column("parameters", overflow="fold")
    for run in entries:
        state = "finished" if run.finished else "unfinished"
        if run.key not in referred:
            state += ", unused"
        config = run.config if run.described else None
        table.add_row(
            run.key[:8],
            config.dataset if config else "?",
            config.name if config else "?",
            state,
            _age(time.time() - run.modified),
            _size(run.size),
            _parameters(run) if config else "",
        )
    console.print(table)
    total = _size(sum(run.size for run in entries))
    console.print(f"{len(entries)} runs, {total}, in {store.root}")


def prune_runs(root: Path) -> None:
    """Remove every run that neither the present parameters nor the present results name."""
    store = RunStore(store_folder(root))
    referred = _referred(root)
    removed, freed = 0, 0
    for run in store.entries():
        if run.key in referred:
            continue
        size = run.size
        if store.remove(run):
            removed, freed = removed + 1, freed + size
        else:
            sys.stdout.write(f"{run.key[:8]} is at work and stays\n")
    kept = len(store.entries())
    sys.stdout.write(f"removed {removed} runs ({_size(freed)}), kept {kept}\n")


def _referred(root: Path) -> set[str]:
    """The keys that params.yaml comes to, and those laid out under results/ for its data sets."""
    keys: set[str] = set()
    for dataset in read_params(root).datasets:
        data_file = root / processed_file(dataset)
        if data_file.exists():
            digest = sha256(data_file)
            named = named_runs(plan(root, dataset), digest, RunStore(store_folder(root)))
            keys |= {key_of(config, digest) for config in named}
    for folder in sorted((root / "results").glob("*/train")):
        try:
            keys |= {run.key for run in trained_runs(root, folder.parent.name)}
        except (MNError, json.JSONDecodeError):
            continue  # a folder without its list of runs refers to none
    return keys


def _parameters(run: StoredRun) -> str:
    """The settings on one line; a run's method is in its name already."""
    groups = [value for value in run.record["config"].values() if isinstance(value, dict)]
    return " ".join(
        f"{key}={json.dumps(value) if not isinstance(value, str) else value}"
        for group in groups
        for key, value in group.items()
        if value not in ([], 0.0)
    )


def _age(seconds: float) -> str:
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s"


def _size(size: float) -> str:
    for unit in ("B", "kB", "MB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} GB"
