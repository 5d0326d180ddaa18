"""Products of matrices, by the faster of the two libraries that come with torch.

On a CPU torch multiplies float32 matrices with MKL, which on processors of other makers leaves the
widest instructions unused. oneDNN, which torch has for its convolutions, uses them: there it takes
half the time, and nowhere much more. Both compute in float32; they differ in the order of their sums.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

# From how many columns of the result on oneDNN is the faster one, measured on inner sides of 128 and 500.
_LEAST_COLUMNS = 16
_LEAST_COLUMNS_ACROSS = 128


def by_onednn(*tensors: Tensor) -> bool:
    """Whether :func:`product` takes oneDNN for these; what it gives then lies row by row."""
    return (
        all(t.device.type == "cpu" and t.dtype == torch.float32 and t.ndim == 2 for t in tensors)
        and torch.backends.mkldnn.is_available()
        and bool(torch.backends.mkldnn.enabled)
        and not torch.is_autocast_enabled("cpu")  # which asks for products in half precision
        and not torch.compiler.is_compiling()  # which chooses by itself
        # of vmap, jvp and their kin, and of dual numbers, torch's own product knows the rules
        and not torch._C._are_functorch_transforms_active()
        and forward_ad._current_level < 0
    )


def product(x: Tensor, y: Tensor, bias: Tensor | None = None) -> Tensor:
    """``x y``, or ``x y + bias``: ``(B, k), (k, n), (n,) -> (B, n)``."""
    if by_onednn(x, y) and (bias is None or bias.dtype == x.dtype):
        # without a derivative to come, less is done around the product
        xy: Tensor = _Product.apply(x, y, bias) if torch.is_grad_enabled() else _multiply(x, y, bias)
        return xy
    # With MKL the product whose long side is the rows is the faster way round; n is the longer one here.
    xy = (y.mT @ x.mT).mT
    return xy if bias is None else xy + bias


def _multiply(x: Tensor, y: Tensor, bias: Tensor | None) -> Tensor:
    # An x that lies across has to be copied for oneDNN, which pays from so many columns of y on.
    least = _LEAST_COLUMNS if x.is_contiguous() else _LEAST_COLUMNS_ACROSS
    if y.shape[1] < least or 0 in (*x.shape, *y.shape):
        return x @ y if bias is None else torch.addmm(bias, x, y)
    xy: Tensor = torch.ops.mkldnn._linear_pointwise(x.contiguous(), y.mT, bias, "none", [], "")
    return xy


class _Product(torch.autograd.Function):
    """Its derivatives are products of the same kind, to any order."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, y)
        return _multiply(x, y, bias)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, y = ctx.saved_tensors
        to_x = product(grad, y.mT) if ctx.needs_input_grad[0] else None
        to_y = None
        if ctx.needs_input_grad[1]:
            # laid out as y is: gradients that lie across each other are slow to add
            to_y = product(x.mT, grad) if y.is_contiguous() else product(grad.mT, x).mT
        return to_x, to_y, grad.sum(0) if ctx.needs_input_grad[2] else None
