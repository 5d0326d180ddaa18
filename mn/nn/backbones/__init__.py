"""Feature extractors μ_θ of the paper's experiments.

Our own end in a global average pool of a map without its last ReLU, so that features are roughly
Gaussian (Sec. 2.4), and take images of any size from 8×8. Every backbone says the size of its features in
``num_features``. iFiLM is put behind their BatchNorms by :func:`mn.nn.insert_ifilm`.
"""

from __future__ import annotations

from collections.abc import Callable

from mn.nn.backbones.base import Backbone
from mn.nn.backbones.convnet import convnet4
from mn.nn.backbones.densenet import densenet40
from mn.nn.backbones.resnet import resnet29, resnet56

__all__ = [
    "BACKBONES",
    "Backbone",
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
