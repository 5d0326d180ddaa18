"""Stage 2: one HDF5 file with splits and statistics."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from mn.data.prepare import prepare
from mn.yamlfile import read_yaml
from pipeline.params import RECIPES, find_entry, read_params, source
from pipeline.paths import processed_file, raw_folder


def preprocess(root: Path, dataset: str) -> Path:
    """Bring a data set into ``data/processed/<dataset>.h5``."""
    entry = find_entry(root, dataset)
    target = root / processed_file(dataset)
    prepare(entry, root / raw_folder(dataset), target, **_options(root, dataset), tell=_tell)
    return target


def _options(root: Path, dataset: str) -> dict[str, Any]:
    """The settings in ``data`` that say something: all but ``all`` and ``none``.

    A set without a recipe (nothing is trained on it yet) has those that params.yaml sets.
    """
    recipe = dataset in read_yaml(root / RECIPES)
    data = source(root, dataset).data if recipe else read_params(root).data
    return {key: value for key, value in data.model_dump().items() if not isinstance(value, str)}


def _tell(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()
