"""Products by oneDNN against plain ones: values, derivatives, layouts, and when plain ones are taken."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from mn.functional._product import by_onednn, product

needs_onednn = pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="torch without oneDNN")

SHAPES = [(7, 5, 3), (1, 4, 6), (6, 1, 20), (5, 3, 1), (130, 257, 65), (33, 70, 140)]


def pair(shape: tuple[int, int, int], *, x_across: bool = False, y_across: bool = False) -> list[Tensor]:
    """Two factors; one that lies across has its columns next to each other in memory."""
    rows, inner, columns = shape
    g = torch.Generator().manual_seed(0)
    x, y = torch.randn(rows, inner, generator=g), torch.randn(inner, columns, generator=g)
    return [x.mT.contiguous().mT if x_across else x, y.mT.contiguous().mT if y_across else y]


@needs_onednn
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("x_across", [False, True])
@pytest.mark.parametrize("y_across", [False, True])
def test_product_and_its_derivatives_equal_those_of_matmul(
    shape: tuple[int, int, int], x_across: bool, y_across: bool
) -> None:
    x, y = (t.requires_grad_() for t in pair(shape, x_across=x_across, y_across=y_across))
    assert by_onednn(x, y)
    weight = torch.randn(shape[0], shape[2], generator=torch.Generator().manual_seed(1))
    ours, plain = product(x, y), x.double() @ y.double()
    torch.testing.assert_close(ours.double(), plain, rtol=1e-5, atol=1e-4)
    expected = torch.autograd.grad((plain * weight).sum(), (x, y))
    for found, right in zip(torch.autograd.grad((ours * weight).sum(), (x, y)), expected, strict=True):
        torch.testing.assert_close(found, right, rtol=1e-5, atol=1e-4)


@needs_onednn
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_bias_is_added_to_every_row(shape: tuple[int, int, int], dtype: torch.dtype) -> None:
    x, y = pair(shape)
    bias = torch.arange(shape[2], dtype=dtype).requires_grad_()
    ours = product(x, y, bias)
    torch.testing.assert_close(ours, x @ y + bias, rtol=1e-5, atol=1e-4)
    weight = torch.randn(ours.shape, dtype=dtype, generator=torch.Generator().manual_seed(1))
    (to_bias,) = torch.autograd.grad((ours * weight).sum(), bias)
    torch.testing.assert_close(to_bias, weight.sum(0), rtol=1e-5, atol=1e-5)


@needs_onednn
@pytest.mark.parametrize("across", [False, True])
def test_gradient_lies_as_its_factor_does(across: bool) -> None:
    x, y = (t.requires_grad_() for t in pair((7, 5, 3), y_across=across))
    (to_y,) = torch.autograd.grad(product(x, y).sum(), y)
    assert to_y.stride() == y.stride()


@needs_onednn
def test_second_derivative_equals_that_of_matmul() -> None:
    x, y = (t.requires_grad_() for t in pair((4, 3, 2), y_across=True))

    def second(multiply: Callable[[Tensor, Tensor], Tensor]) -> tuple[Tensor, ...]:
        (to_x,) = torch.autograd.grad(multiply(x, y).pow(3).sum(), x, create_graph=True)
        return torch.autograd.grad(to_x.square().sum(), (x, y))

    for found, right in zip(second(product), second(torch.matmul), strict=True):
        torch.testing.assert_close(found, right, rtol=1e-4, atol=1e-4)


@needs_onednn
@pytest.mark.parametrize("grad", [False, True])
def test_vmap_equals_a_loop(grad: bool) -> None:
    g = torch.Generator().manual_seed(0)
    x, y = torch.randn(3, 4, 5, generator=g), torch.randn(5, 2, generator=g)
    with torch.set_grad_enabled(grad):
        batched = torch.vmap(product, in_dims=(0, None))(x, y)
    torch.testing.assert_close(batched, torch.stack([one @ y for one in x]))


@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated:FutureWarning")  # torch's own, of torch
def test_forward_derivatives_are_those_of_matmul() -> None:
    x, y, to_x, to_y = *pair((4, 3, 2)), *pair((4, 3, 2), x_across=True)
    expected = to_x @ y + x @ to_y
    _, tangent = torch.func.jvp(product, (x, y), (to_x, to_y))
    torch.testing.assert_close(tangent, expected)
    with torch.no_grad(), torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(x, to_x)
        (_, tangent) = torch.autograd.forward_ad.unpack_dual(product(dual, y))
    torch.testing.assert_close(tangent, to_x @ y)


@pytest.mark.parametrize("shape", [(0, 3, 2), (3, 0, 2), (3, 2, 0)], ids=str)
def test_nothing_times_something_has_the_right_shape(shape: tuple[int, int, int]) -> None:
    x, y = pair(shape)
    torch.testing.assert_close(product(x, y), x @ y)


def test_double_precision_is_left_to_torch() -> None:
    x, y = (t.double() for t in pair((4, 3, 2)))
    assert not by_onednn(x, y)
    torch.testing.assert_close(product(x, y), x @ y)


def test_autocast_is_left_to_torch() -> None:
    x, y = pair((4, 3, 2))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert not by_onednn(x, y)
        assert product(x, y).dtype == torch.bfloat16


def test_torch_is_asked_whether_onednn_is_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = pair((4, 3, 2))
    monkeypatch.setattr(torch.backends.mkldnn, "enabled", False)
    assert not by_onednn(x, y)
    torch.testing.assert_close(product(x, y), x @ y)
