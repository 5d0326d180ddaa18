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


def product(x: Tensor, y: Tensor) -> Tensor:
    """``x y``: ``(B, k), (k, n) -> (B, n)``."""
    if by_onednn(x, y):
        # without a derivative to come, less is done around the product
        xy: Tensor = _Product.apply(x, y) if torch.is_grad_enabled() else _Product.forward(x, y)
        return xy
    # With MKL the product whose long side is the rows is the faster way round; n is the longer one here.
    return (y.mT @ x.mT).mT


class _Product(torch.autograd.Function):
    """Its derivatives are products of the same kind, to any order."""

    @staticmethod
    def forward(x: Tensor, y: Tensor) -> Tensor:
        # oneDNN would copy an x that lies across, which takes as long as it saves; and has no empty products
        if not x.is_contiguous() or 0 in (*x.shape, *y.shape):
            return x @ y
        xy: Tensor = torch.ops.mkldnn._linear_pointwise(x, y.mT, None, "none", [], "")
        return xy

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:  # noqa: ARG004
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None]:
        x, y = ctx.saved_tensors
        to_x = product(grad, y.mT) if ctx.needs_input_grad[0] else None
        to_y = None
        if ctx.needs_input_grad[1]:
            # laid out as y is: gradients that lie across each other are slow to add
            to_y = product(x.mT, grad) if y.is_contiguous() else product(grad.mT, x).mT
        return to_x, to_y
