"""What our own backbones share: the frame, and their two layers with the authors' settings."""

from __future__ import annotations

from torch import Tensor, nn


class Backbone(nn.Module):
    """``layers``, then a global average pool.

    Convolutions start with Xavier's uniform weights, as in the authors' code.

    Shape:
        - ``(B, in_channels, H, W)`` -> ``(B, num_features)``
    """

    def __init__(self, layers: nn.Sequential, num_features: int) -> None:
        super().__init__()
        self.layers, self.num_features = layers, num_features
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.xavier_uniform_(module.weight)

    def forward(self, images: Tensor) -> Tensor:
        maps: Tensor = self.layers(images)
        return maps.mean((2, 3))


def conv(before: int, after: int, kernel: int, stride: int = 1) -> nn.Conv2d:
    """A convolution that keeps the size of the map, or halves it at stride 2.

    It has no bias: a BatchNorm follows sooner or later and would take it away.
    """
    return nn.Conv2d(before, after, kernel, stride=stride, padding=kernel // 2, bias=False)


def norm(width: int) -> nn.BatchNorm2d:
    """A BatchNorm as TensorFlow's with decay 0.9, which PyTorch calls momentum 0.1, and its ε of 1e-3."""
    return nn.BatchNorm2d(width, eps=1e-3, momentum=0.1)
