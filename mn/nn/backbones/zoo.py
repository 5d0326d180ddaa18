"""torchvision's image classifiers as backbones, from scratch: the classifier's last layer taken off."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from mn.backbone_names import TORCHVISION
from mn.errors import MNError

_CLASSES = 1000  # what the last layer of every classifier of torchvision puts out by default

# Heads beside the main one serve the training of a classifier; a backbone has one output. And these two
# warn where nobody says that they are to draw their weights as they always did.
_OPTIONS: dict[str, dict[str, Any]] = {
    "googlenet": {"aux_logits": False, "init_weights": True},
    "inception_v3": {"aux_logits": False, "init_weights": True},
}


class TorchvisionBackbone(nn.Module):
    """A network of torchvision without weights of others and without its last layer.

    All before that layer stays as torchvision has it, a last ReLU with it (`vgg`, `resnet`).

    Args:
        name: as ``torchvision.models.list_models`` has it.
        in_channels: for another number than the network's 3 the first convolution is a new one; for grey
            images (1) it starts as the old one does on three equal channels.

    Shape:
        - ``(B, in_channels, H, W)`` -> ``(B, num_features)``; which H and W, the network decides
    """

    def __init__(self, name: str, in_channels: int = 3) -> None:
        super().__init__()
        # Not at the top of the file: it takes a second, and most runs use none of these.
        from torchvision.models import get_model

        self.name = name
        self.network: nn.Module = get_model(name, weights=None, **_OPTIONS.get(name, {}))
        self.num_features = _take_off_last_layer(self.network)
        _adapt_first_convolution(self.network, in_channels)

    def forward(self, images: Tensor) -> Tensor:
        try:
            features: Tensor = self.network(images)
        except torch.OutOfMemoryError:
            raise  # says nothing about the size of the images
        except (AssertionError, RuntimeError, ValueError) as error:
            reason = (str(error).strip() or type(error).__name__).splitlines()[0]
            size = "×".join(map(str, images.shape[2:]))
            raise MNError(
                f"backbone {TORCHVISION}{self.name} does not take images of {size}, here as a batch "
                f"{tuple(images.shape)}: {reason}"
            ) from error
        return features


def _take_off_last_layer(network: nn.Module) -> int:
    """Put the identity in the place of the layer that gives the classes; returns d, what it took in."""
    for name, module in reversed(list(network.named_modules())):
        if isinstance(module, nn.Linear) and module.out_features == _CLASSES:
            network.set_submodule(name, nn.Identity())
            return module.in_features
        if isinstance(module, nn.Conv2d) and module.out_channels == _CLASSES:  # squeezenet
            network.set_submodule(name, nn.Identity())
            return module.in_channels
    raise MNError(f"{type(network).__name__} has no last layer of {_CLASSES} classes; use another backbone")


def _adapt_first_convolution(network: nn.Module, in_channels: int) -> None:
    name, old = next((name, m) for name, m in network.named_modules() if isinstance(m, nn.Conv2d))
    if old.in_channels == in_channels:
        return
    new = nn.Conv2d(
        in_channels,
        old.out_channels,
        old.kernel_size,  # type: ignore[arg-type]  # a tuple of two, annotated as of any length
        stride=old.stride,  # type: ignore[arg-type]
        padding=old.padding,  # type: ignore[arg-type]
        dilation=old.dilation,  # type: ignore[arg-type]
        bias=old.bias is not None,
    )
    with torch.no_grad():
        if in_channels == 1:
            new.weight.copy_(old.weight.sum(1, keepdim=True))
        if old.bias is not None and new.bias is not None:
            new.bias.copy_(old.bias)
    network.set_submodule(name, new)
