"""Feature extractors μ_θ of the paper's experiments.

Each ends in a global average pool of a map without its last ReLU, so that features are roughly
Gaussian (Sec. 2.4), takes images of any size from 8×8, and says the size of its features in
``num_features``. iFiLM is put behind their BatchNorms by :func:`mn.nn.insert_ifilm`.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Backbone(nn.Module):
    """``layers``, then a global average pool: ``(B, in_channels, H, W) -> (B, num_features)``."""

    def __init__(self, layers: nn.Sequential, num_features: int) -> None:
        super().__init__()
        self.layers, self.num_features = layers, num_features
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, images: Tensor) -> Tensor:
        maps: Tensor = self.layers(images)
        return maps.mean((2, 3))


def convnet4(in_channels: int = 3, *, last_relu: bool = False) -> Backbone:
    """Four 3×3 convolutions of 24, 96, 192 and 192 channels; d = 192.

    Example:
        >>> import torch
        >>> convnet4()(torch.zeros(2, 3, 32, 32)).shape
        torch.Size([2, 192])
    """
    layers: list[nn.Module] = []
    before = in_channels
    for depth, width in enumerate((24, 96, 192, 192)):
        layers += [_conv(before, width, 3), nn.BatchNorm2d(width)]
        if depth < 3 or last_relu:
            layers.append(nn.ReLU(inplace=True))
        if depth < 2:
            layers.append(nn.MaxPool2d(3, stride=2, padding=1))
        before = width
    return Backbone(nn.Sequential(*layers), before)


def resnet29(in_channels: int = 3, *, last_relu: bool = False) -> Backbone:
    """Pre-activation bottleneck ResNet, 3 blocks in each of 3 stages; d = 256.

    Example:
        >>> import torch
        >>> resnet29()(torch.zeros(2, 3, 32, 32)).shape
        torch.Size([2, 256])
    """
    return _resnet(29, in_channels, last_relu)


def resnet56(in_channels: int = 3, *, last_relu: bool = False) -> Backbone:
    """Pre-activation bottleneck ResNet, 6 blocks in each of 3 stages; d = 256.

    Example:
        >>> import torch
        >>> resnet56()(torch.zeros(2, 3, 32, 32)).shape
        torch.Size([2, 256])
    """
    return _resnet(56, in_channels, last_relu)


def densenet40(in_channels: int = 3, *, last_relu: bool = False, drop_rate: float = 0.2) -> Backbone:
    """DenseNet-BC, growth 12, three blocks of 12 bottleneck pairs; d = 258.

    Example:
        >>> import torch
        >>> densenet40()(torch.zeros(2, 3, 32, 32)).shape
        torch.Size([2, 258])
    """
    growth, pairs = 12, 12
    width = 2 * growth
    layers: list[nn.Module] = [_conv(in_channels, width, 3)]
    for block in range(3):
        for _ in range(pairs):
            layers.append(_DensePair(width, growth, drop_rate))
            width += growth
        if block < 2:
            layers.append(_transition(width, width // 2, drop_rate))
            width //= 2
    layers.append(nn.BatchNorm2d(width))
    if last_relu:
        layers.append(nn.ReLU(inplace=True))
    return Backbone(nn.Sequential(*layers), width)


BACKBONES: dict[str, Callable[..., Backbone]] = {
    "convnet4": convnet4,
    "resnet29": resnet29,
    "resnet56": resnet56,
    "densenet40": densenet40,
}


def _conv(before: int, after: int, kernel: int, stride: int = 1) -> nn.Conv2d:
    # no bias: a BatchNorm follows sooner or later and would take it away
    return nn.Conv2d(before, after, kernel, stride=stride, padding=kernel // 2, bias=False)


def _resnet(depth: int, in_channels: int, last_relu: bool) -> Backbone:
    blocks = (depth - 2) // 9
    width = 16
    layers: list[nn.Module] = [_conv(in_channels, width, 3)]
    for stage in range(3):
        inner = 16 * 2**stage
        for block in range(blocks):
            stride = 2 if stage > 0 and block == 0 else 1
            layers.append(_Bottleneck(width, inner, stride))
            width = _Bottleneck.expansion * inner
    layers.append(nn.BatchNorm2d(width))
    if last_relu:
        layers.append(nn.ReLU(inplace=True))
    return Backbone(nn.Sequential(*layers), width)


class _Bottleneck(nn.Module):
    """BN-ReLU-conv three times (1×1, 3×3, 1×1), added to the input or to its projection."""

    expansion = 4

    def __init__(self, before: int, inner: int, stride: int) -> None:
        super().__init__()
        after = self.expansion * inner
        self.bn1, self.conv1 = nn.BatchNorm2d(before), _conv(before, inner, 1)
        self.bn2, self.conv2 = nn.BatchNorm2d(inner), _conv(inner, inner, 3, stride)
        self.bn3, self.conv3 = nn.BatchNorm2d(inner), _conv(inner, after, 1)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or before != after:
            self.shortcut = nn.Sequential(_conv(before, after, 1, stride), nn.BatchNorm2d(after))

    def forward(self, x: Tensor) -> Tensor:
        h = self.conv1(F.relu(self.bn1(x)))
        h = self.conv2(F.relu(self.bn2(h)))
        h = self.conv3(F.relu(self.bn3(h)))
        out: Tensor = h + self.shortcut(x)
        return out


class _DensePair(nn.Module):
    """BN-ReLU-1×1 to four times the growth, BN-ReLU-3×3 to the growth, joined to the input."""

    def __init__(self, before: int, growth: int, drop_rate: float) -> None:
        super().__init__()
        self.bn1, self.conv1 = nn.BatchNorm2d(before), _conv(before, 4 * growth, 1)
        self.bn2, self.conv2 = nn.BatchNorm2d(4 * growth), _conv(4 * growth, growth, 3)
        self.dropout = nn.Dropout(drop_rate)

    def forward(self, x: Tensor) -> Tensor:
        h = self.dropout(self.conv1(F.relu(self.bn1(x))))
        h = self.dropout(self.conv2(F.relu(self.bn2(h))))
        return torch.cat([x, h], 1)


def _transition(before: int, after: int, drop_rate: float) -> nn.Sequential:
    return nn.Sequential(
        nn.BatchNorm2d(before),
        nn.ReLU(inplace=True),
        _conv(before, after, 1),
        nn.Dropout(drop_rate),
        nn.AvgPool2d(2),
    )
