"""Feature extractors μ_θ: those of the paper's experiments, and torchvision's.

Our own end in a global average pool of a map without its last ReLU, so that features are roughly
Gaussian (Sec. 2.4), and take images of any size from 8×8. Every backbone says the size of its features in
``num_features``. iFiLM is put behind their BatchNorms by :func:`mn.nn.insert_ifilm`.
"""

from __future__ import annotations

from collections.abc import Callable

from mn.backbone_names import TORCHVISION, check_backbone
from mn.nn.backbones.base import Backbone
from mn.nn.backbones.convnet import convnet4
from mn.nn.backbones.densenet import densenet40
from mn.nn.backbones.resnet import resnet29, resnet56
from mn.nn.backbones.zoo import TorchvisionBackbone

__all__ = [
    "BACKBONES",
    "Backbone",
    "TorchvisionBackbone",
    "build_backbone",
    "convnet4",
    "densenet40",
    "resnet29",
    "resnet56",
]

BACKBONES: dict[str, Callable[..., Backbone]] = {
    "convnet4": convnet4,
    "densenet40": densenet40,
    "resnet29": resnet29,
    "resnet56": resnet56,
}


def build_backbone(name: str, in_channels: int, *, last_relu: bool = False) -> Backbone | TorchvisionBackbone:
    """The backbone of that name with fresh weights, drawn from PyTorch's global generator.

    Args:
        name: one of :data:`BACKBONES`, or ``torchvision:NAME`` with an image classifier of torchvision.
        in_channels: of the images, 1 or 3.
        last_relu: keep the ReLU before the average pool, as the dot-product vanilla baseline does. A network
            of torchvision is taken as it is, whatever this says.

    Raises:
        MNError: a name that is not known.

    Example:
        >>> build_backbone("resnet29", in_channels=1).num_features
        256
    """
    check_backbone(name)
    if name.startswith(TORCHVISION):
        return TorchvisionBackbone(name.removeprefix(TORCHVISION), in_channels)
    return BACKBONES[name](in_channels, last_relu=last_relu)
