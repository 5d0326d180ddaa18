"""One split of a data set as a model takes it: tensors, standardised on the split's training rows.

Images are not read here but mapped: their pages come into memory when they are looked at, are shared by the
processes that train side by side, and a set larger than the memory is no obstacle.
"""

from __future__ import annotations

import json
import warnings
from dataclasses import dataclass, fields
from pathlib import Path

import h5py
import numpy as np
import torch
from torch import Tensor

from mn.data.hdf5 import PARTS, open_dataset
from mn.errors import MNError


@dataclass(frozen=True)
class Part:
    """Inputs and targets of one part. Images stay uint8; the rest is standardised float32.

    Attributes:
        x: inputs, of this part alone or, with ``rows``, of the whole data set.
        y: targets of this part ``(n, …)``.
        rows: where in ``x`` this part's inputs are ``(n,)``.
        weights: how much each row counts in the loss ``(n,)``, 1 on average; None if all count alike.
    """

    x: Tensor
    y: Tensor
    rows: Tensor | None = None
    weights: Tensor | None = None

    def __len__(self) -> int:
        return len(self.y)

    def inputs(self, index: Tensor | slice) -> Tensor:
        """The inputs at some places of this part, by numbers or a range of them."""
        if self.rows is None:
            return self.x[index]
        return self.x[self.rows[index].to(self.x.device)]

    def on(self, device: torch.device) -> Part:
        """The same part with all it refers to on a device."""
        weights = None if self.weights is None else self.weights.to(device)
        return Part(self.x.to(device), self.y.to(device), self.rows, weights)


@dataclass(frozen=True)
class Standardisation:
    """Means and standard deviations of a split's training rows, float64; None where none are applied.

    ``x_limit ()`` is how many standard deviations from the mean an input may lie: what lies further is taken
    to lie there. One row with a value that a nearly constant column never had before is else a point so far
    out that a network's answer to it can outweigh all others in a mean of squares.
    """

    x_mean: Tensor | None = None
    x_std: Tensor | None = None
    y_mean: Tensor | None = None
    y_std: Tensor | None = None
    x_limit: Tensor | None = None

    def inputs(self, x: Tensor) -> Tensor:
        """Raw inputs ``(B, d)`` as a network takes them, float32."""
        if self.x_mean is None or self.x_std is None:
            return x
        x = (x - self.x_mean) / self.x_std
        return (x if self.x_limit is None else x.clamp(-self.x_limit, self.x_limit)).float()

    def targets(self, y: Tensor) -> Tensor:
        """Targets ``(B, t)`` in their own unit as a network learns them, float32; classes as they are."""
        if self.y_mean is None or self.y_std is None:
            return y
        return ((y - self.y_mean) / self.y_std).float()


@dataclass(frozen=True)
class SplitData:
    """What a run needs to know about its data."""

    task: str
    kind: str
    num_classes: int
    num_targets: int
    standardisation: Standardisation
    train: Part
    validation: Part
    test: Part
    flip: bool = False  # a mirrored image is as good as the image

    @property
    def input_shape(self) -> tuple[int, ...]:
        return tuple(self.train.x.shape[1:])


def load_split(path: Path, split: str) -> SplitData:
    """One split of a data set, with its inputs and targets as a model takes them."""
    with open_dataset(path) as file:
        if f"splits/{split}" not in file:
            raise MNError(f"{path}: no split {split}; it has {', '.join(file['splits'])}")
        group = file[f"splits/{split}"]
        stored = [field.name for field in fields(Standardisation) if field.name in group]
        scale = Standardisation(**{name: torch.as_tensor(group[name][()]) for name in stored})
        y = scale.targets(torch.from_numpy(file["y"][:]))
        rows = {part: group[part][:] for part in PARTS}
        targets = {part: y[rows[part]] for part in PARTS}
        if file.attrs["kind"] == "images":
            images = _mapped(path, file["x"])
            parts = {part: Part(images, targets[part], torch.from_numpy(rows[part])) for part in PARTS}
        else:
            x = scale.inputs(torch.from_numpy(file["x"][:]))
            parts = {part: Part(x[rows[part]], targets[part]) for part in PARTS}
        return SplitData(
            task=file.attrs["task"],
            kind=file.attrs["kind"],
            num_classes=len(json.loads(file.attrs["classes"])),
            num_targets=y.shape[1] if file.attrs["task"] == "regression" else 0,
            standardisation=scale,
            flip=bool(file.attrs["flip"]),
            **parts,
        )


def _mapped(path: Path, dataset: h5py.Dataset) -> Tensor:
    """The images as they lie in the file."""
    offset = dataset.id.get_offset()
    if offset is None:
        raise MNError(f"{path}: its images do not lie in one piece; preprocess it again")
    # Read-only: the system refuses to map more than the memory holds for writing, copies or not.
    images = np.memmap(path, np.uint8, "r", offset, dataset.shape)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # PyTorch's, of tensors that must not be written to
        return torch.from_numpy(images)
