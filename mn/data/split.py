"""One split of a data set as a model takes it: tensors, standardised on the split's training rows."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from mn.data.hdf5 import PARTS, open_dataset
from mn.errors import MNError


@dataclass(frozen=True)
class Part:
    """Inputs and targets of one part. Images stay uint8; the rest is standardised float32."""

    x: Tensor
    y: Tensor

    def __len__(self) -> int:
        return len(self.x)


@dataclass(frozen=True)
class Standardisation:
    """Means and standard deviations of a split's training rows, float64; None where none are applied."""

    x_mean: Tensor | None = None
    x_std: Tensor | None = None
    y_mean: Tensor | None = None
    y_std: Tensor | None = None


@dataclass(frozen=True)
class SplitData:
    """What a run needs to know about its data."""

    task: str
    num_classes: int
    num_targets: int
    standardisation: Standardisation
    train: Part
    validation: Part
    test: Part

    @property
    def input_shape(self) -> tuple[int, ...]:
        return tuple(self.train.x.shape[1:])


def load_split(path: Path, split: str) -> SplitData:
    """One split of a data set, with its inputs and targets as a model takes them."""
    with open_dataset(path) as file:
        if f"splits/{split}" not in file:
            raise MNError(f"{path}: no split {split}; it has {', '.join(file['splits'])}")
        group = file[f"splits/{split}"]
        x, y = file["x"][:], file["y"][:]
        names = ("x_mean", "x_std", "y_mean", "y_std")
        statistics = {name: group[name][:] for name in names if name in group}
        if "x_mean" in statistics:
            x = ((x - statistics["x_mean"]) / statistics["x_std"]).astype(np.float32)
        if "y_mean" in statistics:
            y = ((y - statistics["y_mean"]) / statistics["y_std"]).astype(np.float32)
        regression = file.attrs["task"] == "regression"
        parts = {
            part: Part(torch.from_numpy(x[rows]), torch.from_numpy(y[rows]))
            for part in PARTS
            for rows in [group[part][:]]
        }
        return SplitData(
            task=file.attrs["task"],
            num_classes=len(json.loads(file.attrs["classes"])),
            num_targets=y.shape[1] if regression else 0,
            standardisation=Standardisation(
                **{name: torch.from_numpy(value) for name, value in statistics.items()}
            ),
            **parts,
        )
