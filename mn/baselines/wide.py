"""Vanilla with as many parameters as MN: one extra fully connected layer in place of the dictionary."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class WideLayer(nn.Module):
    """A fully connected layer of exactly ``parameters`` weights and biases, then a ReLU (Appendix C).

    It has as many whole units, each of d weights and a bias, as fit; what is left over makes one more unit
    that sees only so many features.

    Args:
        num_features: d, the size of an input.
        parameters: how many weights it is to have; a dictionary has ``S · (d + C)``.

    Shape:
        - ``(B, d) -> (B, num_outputs)``

    Example:
        >>> layer = WideLayer(4, parameters=17)
        >>> sum(p.numel() for p in layer.parameters()), layer(torch.zeros(2, 4)).shape
        (17, torch.Size([2, 4]))
    """

    def __init__(self, num_features: int, *, parameters: int) -> None:
        super().__init__()
        if parameters < 1:
            raise ValueError(f"parameters: expected at least 1, got {parameters}")
        units, left = divmod(parameters, num_features + 1)
        self.num_features, self.num_outputs = num_features, units + (left > 0)
        self.weight = nn.Parameter(torch.empty(units, num_features))
        self.bias = nn.Parameter(torch.empty(units))
        self.rest = nn.Parameter(torch.empty(left)) if left else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """He weights, no biases."""
        std = math.sqrt(2 / self.num_features)
        nn.init.normal_(self.weight, std=std)
        nn.init.zeros_(self.bias)
        if self.rest is not None:
            nn.init.normal_(self.rest, std=std)

    def forward(self, features: Tensor) -> Tensor:
        out = F.linear(features, self.weight, self.bias)
        if self.rest is not None:
            last = features[:, : len(self.rest)] @ self.rest
            out = torch.cat([out, last.unsqueeze(1)], 1)
        return out.relu()

    def extra_repr(self) -> str:
        return f"{self.num_features}, {self.num_outputs}"
