"""From a run's configuration to its model."""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from mn.baselines.maxl import LabelGenerator, MAXLNetwork
from mn.baselines.wide import WideLayer
from mn.data.split import SplitData
from mn.engine.config import NetworkSettings, RunConfig
from mn.errors import MNError
from mn.nn import CosineHead, DotHead, Head, IFiLM, MetaNeighborhoods, MLPHead, Vanilla, insert_ifilm
from mn.nn.backbones import build_backbone


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
) -> nn.Module:
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
        if not any(isinstance(module, IFiLM) for module in backbone.modules()):
            raise MNError(
                f"{config.dataset}, {config.method}: iFiLM sits behind BatchNorm layers, and backbone "
                f"{network.backbone} has none; use another, or leave {config.method} out of methods"
            )
    if config.maxl:
        return MAXLNetwork(
            backbone,
            num_features,
            shape.num_classes,
            subclasses=config.maxl.subclasses,
            head=network.head,
        )
    if config.wide:
        layer = WideLayer(num_features, parameters=config.wide.S * (num_features + shape.num_classes))
        return Vanilla(nn.Sequential(backbone, layer), _head(network, layer.num_outputs, shape))
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
        init=dictionary.init,
        key_scale=dictionary.key_scale,
        values=dictionary.values,
        metric=dictionary.metric,
        value_range=value_range,
    )


def build_generator(config: RunConfig, shape: ModelShape) -> LabelGenerator | None:
    """MAXL's label generator, a network like the one it labels for; None for every other method."""
    if config.maxl is None:
        return None
    assert config.network is not None
    backbone, num_features = _backbone(config.network, shape)
    return LabelGenerator(backbone, num_features, shape.num_classes, subclasses=config.maxl.subclasses)


def _backbone(network: NetworkSettings, shape: ModelShape) -> tuple[nn.Module, int]:
    if network.backbone == "identity":
        return nn.Identity(), shape.input_shape[0]
    backbone = build_backbone(network.backbone, shape.input_shape[0], last_relu=network.last_relu)
    return backbone, backbone.num_features


def _head(network: NetworkSettings, num_features: int, shape: ModelShape) -> Head:
    if network.head == "mlp":
        return MLPHead(
            num_features,
            shape.num_targets or None,
            num_classes=shape.num_classes or None,
            hidden=tuple(network.hidden),
            activation=network.activation,
        )
    head = CosineHead if network.head == "cosine" else DotHead
    return head(num_features, shape.num_classes)
