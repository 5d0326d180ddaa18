"""From a run's configuration to its model and optimiser."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from mn.data.split import SplitData
from mn.engine.config import NetworkSettings, RunConfig, TrainSettings
from mn.nn import (
    Alpha,
    CosineHead,
    Dictionary,
    DotHead,
    Head,
    IFiLM,
    MetaNeighborhoods,
    MLPHead,
    Vanilla,
    insert_ifilm,
)
from mn.nn.backbones import BACKBONES


@dataclass(frozen=True)
class ModelShape:
    """What a model has to know about its data: the shape of an input, and what comes out."""

    input_shape: tuple[int, ...]
    num_classes: int = 0
    num_targets: int = 0

    @classmethod
    def of(cls, data: SplitData) -> ModelShape:
        return cls(data.input_shape, data.num_classes, data.num_targets)


def build_model(
    config: RunConfig,
    shape: ModelShape,
    *,
    value_range: tuple[float, float] = (-1.0, 1.0),
) -> MetaNeighborhoods | Vanilla:
    """The model of a run with fresh weights, drawn from PyTorch's global generator.

    Args:
        value_range: the targets' range in the training rows; regression values start uniform over it.
    """
    if config.network is None:
        raise ValueError(f"method {config.method} has no network to build")
    network, dictionary = config.network, config.dictionary
    backbone, num_features = _backbone(network, shape)
    if config.ifilm:
        insert_ifilm(backbone, S_l=config.ifilm.S_l)
    head = _head(network, num_features, shape)
    if dictionary is None:
        return Vanilla(backbone, head)
    return MetaNeighborhoods(
        backbone,
        num_features=num_features,
        num_classes=shape.num_classes or None,
        num_outputs=shape.num_targets or None,
        head=head,
        S=dictionary.S,
        T=dictionary.T,
        similarity=dictionary.similarity,
        steps=dictionary.steps,
        alpha=dictionary.alpha,
        alpha_init=dictionary.alpha_init,
        alpha_learned=dictionary.alpha_learned,
        dropout=dictionary.dropout,
        dropout_per=dictionary.dropout_per,
        key_init=dictionary.key_init,
        key_scale=dictionary.key_scale,
        values=dictionary.values,
        value_range=value_range,
    )


def build_optimizer(model: nn.Module, settings: TrainSettings) -> torch.optim.Optimizer:
    """The optimiser, with no weight decay on the dictionaries, α and the linear heads."""
    exempt = {
        id(parameter)
        for module in model.modules()
        if isinstance(module, (Dictionary, IFiLM, Alpha, CosineHead, DotHead))
        for parameter in module.parameters()
    }
    parameters = [p for p in model.parameters() if p.requires_grad]
    groups: list[dict[str, Any]] = [
        {"params": [p for p in parameters if id(p) not in exempt]},
        {"params": [p for p in parameters if id(p) in exempt], "weight_decay": 0.0},
    ]
    groups = [group for group in groups if group["params"]]
    lr, decay = settings.lr, settings.weight_decay
    # Fused: one kernel for all parameters, which is most of the time of a step on small models.
    if settings.optimizer == "sgd":
        return torch.optim.SGD(groups, lr, settings.momentum, weight_decay=decay, fused=True)
    if settings.optimizer == "adam":
        return torch.optim.Adam(groups, lr, weight_decay=decay, fused=True)
    return torch.optim.AdamW(groups, lr, weight_decay=decay, fused=True)


def _backbone(network: NetworkSettings, shape: ModelShape) -> tuple[nn.Module, int]:
    if network.backbone == "identity":
        return nn.Identity(), shape.input_shape[0]
    backbone = BACKBONES[network.backbone](in_channels=shape.input_shape[0])
    return backbone, backbone.num_features


def _head(network: NetworkSettings, num_features: int, shape: ModelShape) -> Head:
    if network.head == "mlp":
        return MLPHead(
            num_features,
            shape.num_targets,
            hidden=tuple(network.hidden),
            activation=network.activation,
        )
    head = CosineHead if network.head == "cosine" else DotHead
    return head(num_features, shape.num_classes)
