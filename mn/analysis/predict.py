"""What a finished run says about the test part."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from mn.data.feed import batches
from mn.data.split import SplitData
from mn.engine.config import RunConfig
from mn.engine.devices import resolve_device
from mn.engine.fit import WEIGHTS
from mn.engine.modelfile import load_model
from mn.engine.runs import OF_THEIR_OWN, own_module
from mn.nn import MetaNeighborhoods

BATCH = 512


def predict_run(config: RunConfig, folder: Path, data: SplitData) -> dict[str, np.ndarray]:
    """Predictions for the test part: ``adapted`` (or the only ones), and for MN also ``before``.

    Labels ``(N,)`` for classification, standardised targets ``(N, t)`` for regression.
    """
    if config.method in OF_THEIR_OWN:
        return {"adapted": own_module(config.method).predict(config, folder, data, data.test)}
    device = resolve_device("auto")
    model = load_model(folder / WEIGHTS).model.to(device)
    found: dict[str, list[torch.Tensor]] = {}
    with torch.inference_mode():
        for x, _ in batches(data.test, BATCH, device):
            if isinstance(model, MetaNeighborhoods):
                compared = model.compare(x)
                found.setdefault("adapted", []).append(compared.after)
                found.setdefault("before", []).append(compared.before)
            else:
                found.setdefault("adapted", []).append(model(x))
    outputs = {kind: torch.cat(parts).cpu() for kind, parts in found.items()}
    if data.task == "classification":
        outputs = {kind: output.argmax(1) for kind, output in outputs.items()}
    return {kind: output.numpy() for kind, output in outputs.items()}
