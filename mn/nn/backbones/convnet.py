"""The 4-layer ConvNet of mnist, mnist_m, svhn and pacs."""

from __future__ import annotations

from torch import nn

from mn.nn.backbones.base import Backbone, conv, norm


def convnet4(in_channels: int = 3, *, last_relu: bool = False) -> Backbone:
    """Four 3×3 convolutions of 24, 96, 192 and 192 channels; d = 192.

    Each has a BatchNorm, all but the last a ReLU, the first two a 3×3 max-pool of stride 2. The pools are
    padded, so that 8×8 digits keep a 2×2 map; the authors' are not (a 32×32 image has 8×8 maps at the end
    here, 7×7 there).

    Example:
        >>> import torch
        >>> convnet4()(torch.zeros(2, 3, 32, 32)).shape
        torch.Size([2, 192])
    """
    layers: list[nn.Module] = []
    before = in_channels
    for depth, width in enumerate((24, 96, 192, 192)):
        layers += [conv(before, width, 3), norm(width)]
        if depth < 3 or last_relu:
            layers.append(nn.ReLU(inplace=True))
        if depth < 2:
            layers.append(nn.MaxPool2d(3, stride=2, padding=1))
        before = width
    return Backbone(nn.Sequential(*layers), before)
