"""Stage 5: learned dictionaries as HDF5, and every trained network as one file for use elsewhere."""

from __future__ import annotations

import json
from pathlib import Path

import h5py

from mn.analysis.attention import attention_statistics
from mn.data.split import SplitData, load_split
from mn.engine.devices import resolve_device
from mn.engine.fit import WEIGHTS
from mn.engine.modelfile import load_model
from mn.files import link_or_copy, replacing_folder
from mn.nn import MetaNeighborhoods
from pipeline.params import plan
from pipeline.paths import dictionary_folder, processed_file
from pipeline.train import trained_runs

INDEX = "index.json"


def export(root: Path, dataset: str) -> Path:
    """Write ``results/<dataset>/dictionary/``: per run a model file, for MN a dictionary, and an index."""
    plan(root, dataset)  # refuses wrong parameters before anything is written
    data_file = root / processed_file(dataset)
    device = resolve_device("auto")
    target = root / dictionary_folder(dataset)
    index = []
    with replacing_folder(target) as folder:
        for run in trained_runs(root, dataset):
            config = run.config
            if config.network is None:
                continue
            row = {
                "run": config.name,
                "method": config.row,
                "model": f"{config.name}.safetensors",
            }
            link_or_copy(run.folder / WEIGHTS, folder / row["model"])
            model = load_model(run.folder / WEIGHTS).model.to(device)
            if isinstance(model, MetaNeighborhoods):
                row["dictionary"] = f"{config.name}.h5"
                data = load_split(data_file, config.split)
                _write_dictionary(folder / row["dictionary"], model, data, dataset)
            index.append(row)
        (folder / INDEX).write_text(json.dumps(index, indent=1), encoding="utf-8")
    return target


def _write_dictionary(path: Path, model: MetaNeighborhoods, data: SplitData, dataset: str) -> None:
    """Keys ``(S, d)``, values ``(S, C or t)``, and per part how the rows attend to them."""
    device = next(model.parameters()).device
    with h5py.File(path, "w") as file:
        file.attrs["dataset"] = dataset
        file.attrs["alpha"] = model.alpha().detach().cpu().numpy()
        file["keys"] = model.dictionary.keys.detach().cpu().numpy()
        file["values"] = model.dictionary.values.detach().cpu().numpy()
        for name in ("train", "test"):
            statistics = attention_statistics(model, getattr(data, name), device)
            group = file.create_group(f"attention/{name}")
            group["weight"] = statistics.weight.numpy()
            group["nearest"] = statistics.nearest.numpy()
            group["effective"] = statistics.effective.numpy()
            group.attrs["share_in_use"] = statistics.share_in_use
