"""Checks of the arguments of :mod:`mn.functional`: each error says what was expected and what came.

They run before any work, so that a wrong shape is named where it was passed and not where a matmul
far below happens to notice it.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

SIMILARITIES = ("cosine", "euclidean", "rms")
ACTIVATIONS = ("relu", "tanh")


def matrix(name: str, tensor: Tensor, *, rows: int | None = None, columns: int | None = None) -> None:
    """Require ``(rows, columns)`` with at least one of each; ``None`` leaves a side free."""
    expected = f"({'*' if rows is None else rows}, {'*' if columns is None else columns})"
    if (
        tensor.ndim != 2
        or (rows is not None and tensor.shape[0] != rows)
        or (columns is not None and tensor.shape[1] != columns)
    ):
        raise ValueError(f"{name}: expected shape {expected}, got {tuple(tensor.shape)}")


def finite(name: str, tensor: Tensor) -> None:
    """Require numbers: one NaN makes every weight of its row NaN, far from its cause."""
    # A sum is NaN or infinite as soon as one entry is, and costs one pass instead of three; only
    # when it is not finite (it may also have overflowed) are the entries looked at one by one.
    if not bool(torch.isfinite(tensor.detach().sum())):
        bad = int((~torch.isfinite(tensor)).sum())
        if bad:
            raise ValueError(f"{name}: expected finite numbers, got {bad} NaN or infinite entries")


def positive(name: str, number: float | Tensor) -> None:
    """Require one number above zero."""
    if isinstance(number, Tensor) and number.numel() != 1:
        raise ValueError(f"{name}: expected one number, got shape {tuple(number.shape)}")
    value = float(number.detach() if isinstance(number, Tensor) else number)
    if not value > 0:
        raise ValueError(f"{name}: expected a number above 0, got {value}")


def one_of(name: str, value: str, allowed: Sequence[str]) -> None:
    """Require one of the names this project knows."""
    if value not in allowed:
        raise ValueError(f"{name}: expected one of {', '.join(allowed)}, got {value!r}")


def at_least(name: str, number: int, least: int) -> None:
    """Require a whole number from ``least`` up."""
    if isinstance(number, bool) or not isinstance(number, int) or number < least:
        raise ValueError(f"{name}: expected a whole number of at least {least}, got {number!r}")


def rates(alpha: float | Tensor, sizes: dict[str, int]) -> None:
    """Require α to be a scalar or a vector of one of ``sizes`` (meaning -> length)."""
    if not isinstance(alpha, Tensor) or alpha.ndim == 0:
        return
    if alpha.ndim == 1 and alpha.shape[0] in sizes.values():
        return
    expected = " or ".join(["a scalar ()", *(f"({n},) {what}" for what, n in sizes.items())])
    raise ValueError(f"alpha: expected {expected}, got shape {tuple(alpha.shape)}")


def neighbors(queries: Tensor, keys: Tensor, *, names: tuple[str, str] = ("queries", "keys")) -> None:
    """Require queries ``(B, d)`` of finite numbers and at least one key ``(S, d)``."""
    matrix(names[0], queries)
    matrix(names[1], keys, columns=queries.shape[1])
    if keys.shape[0] == 0:
        raise ValueError(f"{names[1]}: expected at least one entry (S >= 1), got S = 0")
    finite(names[0], queries)


def vector(name: str, tensor: Tensor | None, size: int) -> None:
    """Require ``(size,)``, or nothing."""
    if tensor is not None and tensor.shape != (size,):
        raise ValueError(f"{name}: expected shape ({size},), got {tuple(tensor.shape)}")


def head(features: Tensor, keys: Tensor, values: Tensor, weight: Tensor, bias: Tensor | None) -> int:
    """Require what a classifier head needs to fit together; gives d."""
    neighbors(features, keys, names=("features", "keys"))
    matrix("weight", weight, columns=features.shape[1])
    matrix("values", values, rows=keys.shape[0], columns=weight.shape[0])
    vector("bias", bias, weight.shape[0])
    return features.shape[1]


def mlp(inputs: Tensor, keys: Tensor, values: Tensor, layers: Sequence[tuple[Tensor, Tensor]]) -> None:
    """Require layers that fit each other, the inputs and the values."""
    neighbors(inputs, keys, names=("inputs", "keys"))
    if len(layers) == 0:
        raise ValueError("layers: expected at least one (weight, bias), got none")
    width = inputs.shape[1]
    for depth, (weight, bias) in enumerate(layers):
        matrix(f"layers[{depth}] weight", weight, columns=width)
        width = weight.shape[0]
        vector(f"layers[{depth}] bias", bias, width)
    matrix("values", values, rows=keys.shape[0], columns=width)


def feature_map(activations: Tensor, keys: Tensor, gammas: Tensor, betas: Tensor) -> None:
    """Require a feature map and a dictionary of its channels."""
    if activations.ndim < 2:
        raise ValueError(f"activations: expected (B, C, ...), got {tuple(activations.shape)}")
    matrix("keys", keys, columns=activations.shape[1])
    if keys.shape[0] == 0:
        raise ValueError("keys: expected at least one entry (S >= 1), got S = 0")
    for name, rows in ("gammas", gammas), ("betas", betas):
        matrix(name, rows, rows=keys.shape[0], columns=keys.shape[1])
    finite("activations", activations)
