"""Decision regions of a model on points in the plane, at the moments whose weights were kept."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
import torch
from safetensors.torch import load_file

from mn.data.split import Part
from mn.engine.fit import WEIGHTS
from mn.engine.modelfile import load_model
from mn.nn import MetaNeighborhoods

RESOLUTION = 240  # points along each side of the picture


def write_regions(target: Path, snapshots: Path, run: Path, test: Part, *, half_width: float = 2.2) -> None:
    """Write, per moment, the probability of class 1 on a grid and where the neighbours are.

    File: ``/moments/<iteration>/{probability (R, R), keys (S, 2), values (S, C)}`` and the test part as
    ``/test/{x (N, 2), y (N,)}``; attributes ``run`` and ``half_width``: the grid covers
    ``[-half_width, half_width]²`` in standardised coordinates, rows from the lowest up.
    """
    model = load_model(run / WEIGHTS).model
    assert isinstance(model, MetaNeighborhoods)
    axis = torch.linspace(-half_width, half_width, RESOLUTION)
    grid = torch.cartesian_prod(axis, axis).flip(1)  # (R², 2): x runs fastest
    with h5py.File(target, "w") as file, torch.inference_mode():
        file.attrs["half_width"] = half_width
        file.attrs["run"] = run.name
        file["test/x"] = test.x.numpy()
        file["test/y"] = test.y.numpy()
        for iteration, weights in moments(snapshots).items():
            model.load_state_dict(weights)
            probability = torch.cat([model(part).softmax(1)[:, 1] for part in torch.split(grid, 4096)])
            group = file.create_group(f"moments/{iteration}")
            group["probability"] = probability.reshape(RESOLUTION, RESOLUTION).numpy()
            group["keys"] = model.dictionary.keys.numpy()
            group["values"] = np.asarray(model.dictionary.values)


def moments(snapshots: Path) -> dict[int, dict[str, torch.Tensor]]:
    """The weights kept in training, by iteration, in order."""
    found: dict[int, dict[str, torch.Tensor]] = {}
    for name, tensor in load_file(snapshots).items():
        iteration, _, parameter = name.partition("/")
        found.setdefault(int(iteration), {})[parameter] = tensor
    return dict(sorted(found.items()))
