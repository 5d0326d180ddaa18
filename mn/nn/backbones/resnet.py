"""ResNet-29 and ResNet-56: pre-activation bottleneck networks of 9n+2 layers (He et al. 2016)."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from mn.nn.backbones.base import Backbone, conv, norm
from mn.nn.ifilm import ModulatedConv2d


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


def _resnet(depth: int, in_channels: int, last_relu: bool) -> Backbone:
    """Stages 16 → 64 → 128 → 256.

    As in the authors' code a stage's bottlenecks are as wide as its input (16, 64, 128), which is two
    times wider than He et al.'s in the last two stages.
    """
    blocks = (depth - 2) // 9
    width = 16
    layers: list[nn.Module] = [conv(in_channels, width, 3)]
    for stage, after in enumerate((64, 128, 256)):
        inner = width
        for block in range(blocks):
            stride = 2 if stage > 0 and block == 0 else 1
            layers.append(_Bottleneck(width, inner, after, stride, first=stage == block == 0))
            width = after
    layers.append(norm(width))
    if last_relu:
        layers.append(nn.ReLU(inplace=True))
    return Backbone(nn.Sequential(*layers), width)


class _Bottleneck(nn.Module):
    """BN-ReLU-conv three times (1×1 of the stride, 3×3, 1×1), added to the input or to its projection.

    Args:
        first: the block behind the first convolution, whose BN-ReLU comes before the paths part
            (He et al. 2016, appendix): it belongs to that convolution.
    """

    def __init__(self, before: int, inner: int, after: int, stride: int, *, first: bool = False) -> None:
        super().__init__()
        self.bn1, self.conv1 = norm(before), conv(before, inner, 1, stride)
        self.bn2, self.conv2 = norm(inner), conv(inner, inner, 3)
        self.bn3, self.conv3 = norm(inner), conv(inner, after, 1)
        self.first = first
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or before != after:
            self.shortcut = ModulatedConv2d(before, after, 1, stride=stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        a = F.relu(self.bn1(x))
        h = self.conv1(a)
        h = self.conv2(F.relu(self.bn2(h)))
        h = self.conv3(F.relu(self.bn3(h)))
        out: Tensor = h + self.shortcut(a if self.first else x)
        return out
