"""Where a run is computed and in which precision."""

from __future__ import annotations

from typing import Literal

import torch

from mn.errors import MNError


def resolve_device(name: str) -> torch.device:
    """``auto`` is CUDA where there is a device, else the CPU."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name == "cuda" and not torch.cuda.is_available():
        raise MNError("train.device = cuda, but PyTorch finds no CUDA device here; use cpu or auto")
    return torch.device(name)


def default_precision(device: torch.device) -> Literal["fp32", "bf16"]:
    """bf16 autocast where the hardware is made for it."""
    return "bf16" if device.type == "cuda" and torch.cuda.is_bf16_supported() else "fp32"
