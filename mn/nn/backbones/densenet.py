"""DenseNet40-BC (Huang et al. 2017)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mn.nn.backbones.base import Backbone, conv, norm


def densenet40(in_channels: int = 3, *, last_relu: bool = False, drop_rate: float = 0.2) -> Backbone:
    """DenseNet-BC, growth 12, three blocks of 12 bottleneck pairs, compression 0.5; d = 258.

    By count that is 76 layers; the name is the paper's.

    Example:
        >>> import torch
        >>> densenet40()(torch.zeros(2, 3, 32, 32)).shape
        torch.Size([2, 258])
    """
    growth, pairs = 12, 12
    width = 2 * growth
    layers: list[nn.Module] = [conv(in_channels, width, 3)]
    for block in range(3):
        for _ in range(pairs):
            layers.append(_DensePair(width, growth, drop_rate))
            width += growth
        if block < 2:
            layers.append(_transition(width, width // 2, drop_rate))
            width //= 2
    layers.append(norm(width))
    if last_relu:
        layers.append(nn.ReLU(inplace=True))
    return Backbone(nn.Sequential(*layers), width)


class _DensePair(nn.Module):
    """BN-ReLU-1×1 to four times the growth, BN-ReLU-3×3 to the growth, joined to the input."""

    def __init__(self, before: int, growth: int, drop_rate: float) -> None:
        super().__init__()
        self.bn1, self.conv1 = norm(before), conv(before, 4 * growth, 1)
        self.bn2, self.conv2 = norm(4 * growth), conv(4 * growth, growth, 3)
        self.dropout = nn.Dropout(drop_rate)

    def forward(self, x: Tensor) -> Tensor:
        h = self.dropout(self.conv1(F.relu(self.bn1(x))))
        h = self.dropout(self.conv2(F.relu(self.bn2(h))))
        return torch.cat([x, h], 1)


def _transition(before: int, after: int, drop_rate: float) -> nn.Sequential:
    return nn.Sequential(
        norm(before),
        nn.ReLU(inplace=True),
        conv(before, after, 1),
        nn.Dropout(drop_rate),
        nn.AvgPool2d(2),
    )
