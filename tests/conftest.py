"""What every test shares: one thread per process, and projects in temporary folders."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from ruamel.yaml import YAML

ROOT = Path(__file__).parent.parent

# Two threads on tiny tensors wait for each other; on a shared machine that costs minutes.
torch.set_num_threads(1)

# Small enough for a run to take a second, large enough for every branch to be taken.
TINY: dict[str, dict[str, Any]] = {
    "data": {"rows": 240},
    "model": {"S": 8, "hidden": [8], "S_l": 2, "k": [1, 3]},
    "train": {"epochs": 3, "snapshots": [0, 2], "jobs": 1, "checkpoint_seconds": 0},
}


def set_params(root: Path, **sections: Any) -> None:
    """Change settings in a project's params.yaml: whole values, or keys of a section."""
    yaml = YAML()
    path = root / "params.yaml"
    content = yaml.load(path.read_text(encoding="utf-8"))
    for name, value in sections.items():
        if isinstance(value, dict):
            content[name].update(value)
        else:
            content[name] = value
    with path.open("w", encoding="utf-8") as file:
        yaml.dump(content, file)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """The project's parameter files in a folder of their own, with tiny settings and one seed."""
    root = tmp_path / "project"
    (root / "data").mkdir(parents=True)
    for name in ("params.yaml", "recipes.yaml", "data/catalog.yaml"):
        shutil.copy(ROOT / name, root / name)
    set_params(root, seeds=[0], **TINY)
    return root


@pytest.fixture
def prepared(project: Path) -> Callable[[str], Path]:
    """Run the first two stages for a data set in the tiny project; gives the project's root."""
    from pipeline.download import download
    from pipeline.preprocess import preprocess

    def prepare(dataset: str) -> Path:
        download(project, dataset)
        preprocess(project, dataset)
        return project

    return prepare
