"""A trained model in one safetensors file that says how to rebuild it, and takes raw inputs."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from mn.data.feed import as_input
from mn.data.split import Standardisation
from mn.engine.build import ModelShape, build_model
from mn.engine.config import RunConfig
from mn.errors import MNError

_FORMAT = "1"
_MODEL = "model."


class TrainedModel(nn.Module):
    """A trained network together with the standardisation it was trained under.

    Args:
        model: the network, on standardised inputs.
        standardisation: means and standard deviations of the training rows.

    Shape:
        - images ``(B, C, H, W)`` uint8 or float in [0, 1], or raw rows ``(B, d)`` -> logits ``(B, K)``,
          or targets ``(B, t)`` in their own unit
    """

    x_mean: Tensor | None
    x_std: Tensor | None
    y_mean: Tensor | None
    y_std: Tensor | None
    x_limit: Tensor | None

    def __init__(self, model: nn.Module, standardisation: Standardisation) -> None:
        super().__init__()
        self.model = model
        for name, value in asdict(standardisation).items():
            self.register_buffer(name, value)

    def standardised(self, x: Tensor) -> Tensor:
        """Raw inputs as the network takes them."""
        scale = Standardisation(self.x_mean, self.x_std, x_limit=self.x_limit)
        return scale.inputs(as_input(x))

    def forward(self, x: Tensor) -> Tensor:
        output: Tensor = self.model(self.standardised(x))
        if self.y_mean is None or self.y_std is None:
            return output
        return output * self.y_std + self.y_mean


def save_model(
    path: Path,
    weights: dict[str, Tensor],
    config: RunConfig,
    shape: ModelShape,
    standardisation: Standardisation,
) -> None:
    """Write weights, the configuration that rebuilds the network, and the standardisation."""
    tensors = {f"{_MODEL}{name}": tensor for name, tensor in weights.items()}
    tensors |= {k: v for k, v in asdict(standardisation).items() if v is not None}
    metadata = {
        "format": f"meta-neighborhoods {_FORMAT}",
        "config": json.dumps(config.identity()),
        "shape": json.dumps(asdict(shape)),
    }
    save_file(tensors, path, metadata=metadata)


def load_model(path: str | Path) -> TrainedModel:
    """A model written by :func:`save_model` (or by the pipeline's train stage), ready to predict."""
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except FileNotFoundError:
        raise MNError(f"{path}: no such file") from None
    except (OSError, SafetensorError) as error:
        raise MNError(f"{path}: not a readable safetensors file ({error})") from None
    if metadata.get("format") != f"meta-neighborhoods {_FORMAT}":
        raise MNError(f"{path}: not a model of this project (format {metadata.get('format')!r})")
    shape = json.loads(metadata["shape"])
    shape["input_shape"] = tuple(shape["input_shape"])
    with torch.random.fork_rng(devices=[]):  # fresh weights are drawn, and replaced at once
        model = build_model(RunConfig.from_identity(json.loads(metadata["config"])), ModelShape(**shape))
    weights = {k.removeprefix(_MODEL): v for k, v in tensors.items() if k.startswith(_MODEL)}
    model.load_state_dict(weights)
    rest = {k: v for k, v in tensors.items() if not k.startswith(_MODEL)}
    return TrainedModel(model, Standardisation(**rest)).eval()
