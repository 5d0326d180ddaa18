"""TabM (Gorishniy et al., 2025): an ensemble of MLPs that share most of their weights.

Not in the paper: the network for tables that one would compare with today. Architecture and training are
those its authors propose; how many members, blocks and units is set by ``model.members`` and its kin.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn import functional as F

from mn.data.feed import epoch_order
from mn.data.split import Part, SplitData
from mn.engine.config import RunConfig
from mn.engine.fit import HISTORY, WEIGHTS
from mn.engine.interrupt import Interrupted, StopRequest
from mn.errors import MNError

# The authors' defaults.
_LR, _DECAY, _CLIP, _BATCH = 2e-3, 3e-4, 1.0, 256


def choose(config: RunConfig, data: SplitData, output: Path, stop: StopRequest) -> None:
    """Train with early stopping on the validation part; write the weights of the best epoch."""
    assert config.tabm is not None
    history: list[dict[str, float]] = []
    best: dict[str, Tensor] = {}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)
        model = _build(config, data)
        optimizer = torch.optim.AdamW(model.parameters(), lr=_LR, weight_decay=_DECAY)
        for epoch in range(config.tabm.max_epochs):
            if stop.made:
                raise Interrupted(f"{config.name} was stopped")
            loss = _epoch(
                model, optimizer, data.train, epoch_order(len(data.train), seed=config.seed, epoch=epoch)
            )
            error = _outputs(model, data.validation) - data.validation.y
            history.append({"epoch": epoch + 1, "train_loss": loss, "val_loss": error.square().mean().item()})
            losses = [row["val_loss"] for row in history]
            if losses[-1] == min(losses):
                best = {name: tensor.clone() for name, tensor in model.state_dict().items()}
            if len(losses) - losses.index(min(losses)) > config.tabm.epochs_without:
                break
    save_file(best, output / WEIGHTS)
    (output / HISTORY).write_text(json.dumps(history, indent=1), encoding="utf-8")


def predict(config: RunConfig, folder: Path, data: SplitData, part: Part) -> np.ndarray:
    """Predictions of a finished run for a part: targets ``(B, t)``, the members' mean."""
    with torch.random.fork_rng(devices=[]):  # weights are drawn before they are loaded
        model = _build(config, data)
    model.load_state_dict(load_file(folder / WEIGHTS))
    return _outputs(model, part).numpy()


def _build(config: RunConfig, data: SplitData) -> nn.Module:
    try:
        from tabm import TabM
    except ModuleNotFoundError:
        raise MNError(
            "method tabm needs the package tabm: pip install 'meta-neighborhoods[tabm]', "
            "or leave it out of methods"
        ) from None
    assert config.tabm is not None
    model: nn.Module = TabM.make(
        n_num_features=data.train.x.shape[1],
        d_out=data.num_targets,
        k=config.tabm.members,
        n_blocks=config.tabm.blocks,
        d_block=config.tabm.units,
    )
    return model


def _epoch(model: nn.Module, optimizer: torch.optim.Optimizer, part: Part, order: Tensor) -> float:
    """Each member has a loss of its own. Returns the mean loss."""
    model.train()
    total = 0.0
    for rows in order.split(_BATCH):
        y = part.y[rows]
        output: Any = model(part.inputs(rows))  # (B, members, t)
        loss = F.mse_loss(output, y.unsqueeze(1).expand_as(output))
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), _CLIP)
        optimizer.step()
        total += loss.item() * len(rows)
    return total / len(part)


@torch.no_grad()
def _outputs(model: nn.Module, part: Part) -> Tensor:
    model.eval()
    return torch.cat([model(x).mean(1) for x in part.inputs(slice(None)).split(4 * _BATCH)])
