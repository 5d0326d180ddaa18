"""BatchNorm's statistics for evaluation, recomputed with the weights as they are."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

ROWS = 2048  # enough for statistics to a few per cent, little beside an epoch


@torch.no_grad()
def recompute_statistics(
    backbone: nn.Module, batches: Iterable[Tensor], forward: Callable[[Tensor], object]
) -> None:
    """Replace running means and variances by their averages over ``batches``, at the present weights.

    In training the statistics are averages over weights that have moved since. Features that are the mean
    of a BatchNorm's output, with no ReLU behind it, are turned by a small drift of them: at lr 1e-3 that
    costs more accuracy than an epoch gains (docs/results.md).

    Args:
        backbone: what holds the BatchNorms; left in training mode if it was.
        batches: inputs.
        forward: runs a batch through the backbone.
    """
    layers = [m for m in backbone.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)]
    if not layers:
        return
    with _averaging(backbone, layers):
        for batch in batches:
            forward(batch)


@contextmanager
def _averaging(backbone: nn.Module, layers: list[nn.modules.batchnorm._BatchNorm]) -> Iterator[None]:
    """Only the BatchNorms train, from nothing and with equal weight for every batch."""
    momenta = [layer.momentum for layer in layers]
    modes = {module: module.training for module in backbone.modules()}
    backbone.eval()  # no dropout: evaluation has none either
    for layer in layers:
        layer.train()
        layer.reset_running_stats()
        layer.momentum = None
    try:
        yield
    finally:
        for layer, momentum in zip(layers, momenta, strict=True):
            layer.momentum = momentum
        for module, mode in modes.items():
            module.training = mode
