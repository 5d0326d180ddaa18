"""MAXL: labels, losses, and the generator's gradient through the network's look-ahead step."""

from __future__ import annotations

import copy
import doctest
import importlib
import math
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional as F

from mn.baselines.maxl import (
    LabelGenerator,
    MAXLNetwork,
    entropy,
    focal_loss,
    generator_gradients,
    masked_softmax,
)
from mn.nn import CosineHead, DotHead

C, PSI = 3, 2


def convnet(*, dropout: float = 0.0) -> nn.Sequential:
    """Smooth, so that a central difference is right to the square of its step."""
    return nn.Sequential(
        nn.Conv2d(1, 4, 3),
        nn.BatchNorm2d(4),
        nn.Tanh(),
        nn.Dropout(dropout),
        nn.Conv2d(4, 5, 3),
        nn.BatchNorm2d(5),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
    )


def pair(
    dtype: torch.dtype = torch.float64, *, dropout: float = 0.0, head: str = "cosine"
) -> tuple[MAXLNetwork, LabelGenerator]:
    torch.manual_seed(0)
    network = MAXLNetwork(convnet(dropout=dropout), 5, C, subclasses=PSI, head=head)
    generator = LabelGenerator(convnet(), 5, C, subclasses=PSI)
    return network.to(dtype), generator.to(dtype)


def images(rows: int = 12, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor]:
    draw = torch.Generator().manual_seed(1)
    return torch.randn(rows, 1, 6, 6, generator=draw, dtype=dtype), torch.arange(rows) % C


def flat(tensors: list[Tensor]) -> Tensor:
    return torch.cat([t.flatten() for t in tensors])


def relative_error(actual: list[Tensor], expected: list[Tensor]) -> float:
    return float((flat(actual) - flat(expected)).norm() / flat(expected).norm())


# labels and losses


@settings(deadline=None)
@given(
    classes=st.integers(1, 4),
    subclasses=st.integers(1, 4),
    scale=st.sampled_from([0.0, 1.0, 1e4]),
    seed=st.integers(0, 2**16),
)
def test_labels_are_a_distribution_over_the_own_subclasses(
    classes: int, subclasses: int, scale: float, seed: int
) -> None:
    draw = torch.Generator().manual_seed(seed)
    y = torch.randint(classes, (5,), generator=draw)
    logits = scale * torch.randn(5, classes * subclasses, generator=draw)
    labels = masked_softmax(logits, y, subclasses=subclasses).view(5, classes, subclasses)
    expected = logits.view(5, classes, subclasses)[torch.arange(5), y].softmax(1)
    torch.testing.assert_close(labels[torch.arange(5), y], expected)
    assert labels.count_nonzero() == expected.count_nonzero()


def test_logits_that_do_not_divide_into_subclasses_are_refused() -> None:
    with pytest.raises(ValueError, match="logits: expected a multiple of 2 columns, got 5"):
        masked_softmax(torch.zeros(1, 5), torch.tensor([0]), subclasses=2)


def test_focal_loss_without_gamma_is_the_cross_entropy() -> None:
    logits, y = torch.randn(6, 4), torch.randint(4, (6,))
    soft = torch.randn(6, 4).softmax(1)
    torch.testing.assert_close(focal_loss(logits, y, gamma=0.0), F.cross_entropy(logits, y))
    torch.testing.assert_close(focal_loss(logits, soft, gamma=0.0), F.cross_entropy(logits, soft))


def test_focal_loss_of_soft_labels_weighs_the_loss_of_each_class() -> None:
    logits, soft = torch.randn(1, 3), torch.tensor([[0.5, 0.2, 0.3]])
    each = torch.stack([focal_loss(logits, torch.tensor([k])) for k in range(3)])
    p = logits.softmax(1)[0]
    torch.testing.assert_close(each, -((1 - p) ** 2) * p.log())
    torch.testing.assert_close(focal_loss(logits, soft), (soft[0] * each).sum())


def test_focal_loss_of_parts_with_the_count_of_the_whole_adds_up() -> None:
    logits, y = torch.randn(6, 4), torch.randint(4, (6,))
    parts = focal_loss(logits[:2], y[:2], count=6) + focal_loss(logits[2:], y[2:], count=6)
    torch.testing.assert_close(parts, focal_loss(logits, y))


def test_focal_loss_and_its_gradient_are_finite_when_a_class_is_certain() -> None:
    logits = torch.tensor([[1e4, 0.0], [0.0, 1e4]], requires_grad=True)
    loss = focal_loss(logits, torch.tensor([0, 0]))
    (gradient,) = torch.autograd.grad(loss, logits)
    assert loss.item() == 5e3
    assert gradient.isfinite().all()


def test_entropy_is_that_of_the_mean_label() -> None:
    """Certain labels that differ have the greatest entropy, labels that are all one sub-class none."""
    assert entropy(torch.eye(4)).item() == pytest.approx(math.log(4))
    assert entropy(torch.eye(4)[[2, 2, 2]]).item() == pytest.approx(0.0, abs=1e-6)


def test_gradient_of_the_entropy_is_that_of_its_formula() -> None:
    labels = torch.randn(5, 4, dtype=torch.float64).softmax(1).requires_grad_()
    mean = labels.mean(0)
    (expected,) = torch.autograd.grad(-(mean * mean.log()).sum(), labels)
    (actual,) = torch.autograd.grad(entropy(labels), labels)
    torch.testing.assert_close(actual, expected)


def test_classes_not_in_the_batch_leave_the_entropy_and_its_gradient_finite() -> None:
    logits = torch.randn(3, C * PSI, requires_grad=True)
    value = entropy(masked_softmax(logits, torch.tensor([0, 0, 0]), subclasses=PSI))
    (gradient,) = torch.autograd.grad(value, logits)
    assert value.isfinite()
    assert gradient.isfinite().all()


# networks


@pytest.mark.parametrize(("head", "kind"), [("cosine", CosineHead), ("dot", DotHead)])
def test_the_network_is_called_as_its_primary_part(head: str, kind: type[nn.Module]) -> None:
    network = pair(head=head)[0].eval()
    x, _ = images()
    primary, auxiliary = network.both(x)
    assert isinstance(network.head, kind)
    assert isinstance(network.auxiliary, kind)
    torch.testing.assert_close(network(x), primary)
    torch.testing.assert_close(network.head(network.features(x)), primary)
    assert auxiliary.shape == (len(x), C * PSI)


def test_an_unknown_head_is_refused() -> None:
    with pytest.raises(ValueError, match="head: expected one of cosine, dot, got 'mlp'"):
        MAXLNetwork(nn.Identity(), 4, 3, head="mlp")


# the generator's gradient


def test_exact_gradient_is_that_of_the_equations_written_out() -> None:
    """Two linear layers and heads, and every formula of the look-ahead step from plain matrix products."""
    torch.manual_seed(0)
    rate, decay, w = 0.7, 0.3, 0.2
    network = MAXLNetwork(nn.Linear(4, 6, bias=False), 6, C, subclasses=PSI, head="dot").double()
    generator = LabelGenerator(nn.Identity(), 4, C, subclasses=PSI).double()
    x, y = torch.randn(9, 4, dtype=torch.float64), torch.arange(9) % C

    U, W, b, A, a = (p.detach().clone().requires_grad_() for p in network.parameters())
    G, g = (p.detach().clone().requires_grad_() for p in generator.parameters())
    own = torch.arange(C).repeat_interleave(PSI) == y[:, None]
    e = (x @ G.T + g).exp() * own
    labels = e / e.sum(1, keepdim=True)

    def focal(logits: Tensor, target: Tensor) -> Tensor:
        p = logits.softmax(1)
        return -(target * (1 - p) ** 2 * p.log()).sum() / len(x)

    onehot = torch.eye(C, dtype=torch.float64)[y]
    loss = focal(x @ U.T @ W.T + b, onehot) + focal(x @ U.T @ A.T + a, labels)
    dU, dW, db = torch.autograd.grad(loss, (U, W, b), create_graph=True)
    U2, W2, b2 = (p - rate * (d + decay * p) for p, d in ((U, dU), (W, dW), (b, db)))
    mean = labels.mean(0)
    total = focal(x @ U2.T @ W2.T + b2, onehot) + w * (mean * mean.log()).sum()
    expected = torch.autograd.grad(total, (G, g))

    actual = generator_gradients(network, generator, x, y, rate=rate, weight_decay=decay, entropy_weight=w)
    torch.testing.assert_close(actual, list(expected))


@pytest.mark.parametrize("head", ["cosine", "dot"])
@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_both_forms_agree(head: str, dropout: float) -> None:
    """A step of 0.01 in a smooth network errs by its square, 1e-4, times a factor of the network's own.

    Here that makes 5e-5 to 3e-4. Other dropout for the difference than for the step would be an error
    of about 1.
    """
    network, generator = pair(dropout=dropout, head=head)
    gradients = []
    for form in ("exact", "finite"):
        torch.manual_seed(3)
        how: dict[str, Any] = {"rate": 0.1, "weight_decay": 5e-4, "entropy_weight": 0.0, "form": form}
        gradients.append(generator_gradients(network, generator, *images(), **how))
    assert relative_error(*gradients) < 1e-3


def test_both_forms_draw_the_same_random_numbers() -> None:
    network, generator = pair(dropout=0.5)
    states = []
    for form in ("exact", "finite"):
        torch.manual_seed(3)
        generator_gradients(network, generator, *images(), rate=0.1, form=form)
        states.append(torch.get_rng_state())
    assert torch.equal(*states)


def test_finite_form_survives_autocast() -> None:
    """In bfloat16 the step of the difference is below the last digit of the weights."""
    network, generator = pair(torch.float32)
    x, y = images(dtype=torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        exact, finite = (
            generator_gradients(network, generator, x, y, rate=0.1, entropy_weight=0.0, form=form)
            for form in ("exact", "finite")
        )
    assert relative_error(finite, exact) < 0.1


@pytest.mark.parametrize("form", ["exact", "finite"])
def test_the_network_is_left_as_it_was(form: str) -> None:
    network, generator = pair(dropout=0.5)
    before = copy.deepcopy(network.state_dict())
    generator_gradients(network, generator, *images(), rate=0.1, form=form)
    for name, tensor in network.state_dict().items():
        assert torch.equal(tensor, before[name]), name
    assert all(p.grad is None for p in [*network.parameters(), *generator.parameters()])


def test_frozen_parameters_take_no_part() -> None:
    """A frozen backbone does not step, so that the auxiliary task cannot reach the primary loss."""
    network, generator = pair()
    network.backbone.requires_grad_(False)
    generator.head.bias.requires_grad_(False)
    gradients = generator_gradients(network, generator, *images(), rate=0.1, entropy_weight=0.0)
    assert [g.shape for g in gradients] == [p.shape for p in generator.parameters() if p.requires_grad]
    assert flat(gradients).count_nonzero() == 0


def test_an_unknown_form_is_refused() -> None:
    network, generator = pair()
    with pytest.raises(ValueError, match="form: expected one of exact, finite, got 'first'"):
        generator_gradients(network, generator, *images(), rate=0.1, form="first")


class Ranks:
    """Processes played by threads: ``reduce`` waits for all, then writes the sum in place."""

    def __init__(self, size: int) -> None:
        self.barrier = threading.Barrier(size, timeout=60)
        self.given: dict[int, Tensor] = {}

    def reduce(self, tensor: Tensor) -> Tensor:
        assert not tensor.requires_grad
        self.given[threading.get_ident()] = tensor
        self.barrier.wait()
        total = torch.stack(list(self.given.values())).sum(0)
        self.barrier.wait()
        return tensor.copy_(total)


def test_shares_of_the_entropy_add_up() -> None:
    labels = torch.randn(7, 4, dtype=torch.float64).softmax(1)
    ranks = Ranks(2)
    with ThreadPoolExecutor(2) as pool:
        shares = pool.map(lambda part: entropy(part, count=7, reduce=ranks.reduce), (labels[:3], labels[3:]))
    torch.testing.assert_close(sum(shares), entropy(labels))


@pytest.mark.parametrize("form", ["exact", "finite"])
def test_shares_of_the_parts_of_a_batch_add_up(form: str) -> None:
    """Uneven parts; no BatchNorm, which would see another batch in each."""
    torch.manual_seed(0)
    backbone = nn.Sequential(nn.Flatten(), nn.Linear(36, 5), nn.Tanh())
    network = MAXLNetwork(backbone, 5, C, subclasses=PSI).double()
    generator = LabelGenerator(copy.deepcopy(backbone), 5, C, subclasses=PSI).double()
    x, y = images(12)
    how: dict[str, Any] = {"rate": 0.5, "weight_decay": 0.1, "form": form}
    whole = generator_gradients(network, generator, x, y, **how)

    ranks = Ranks(2)

    def share(rows: slice) -> list[Tensor]:
        # a copy each, as processes have: a pass with other parameters puts them into the module for a while
        mine, its = copy.deepcopy(network), copy.deepcopy(generator)
        return generator_gradients(mine, its, x[rows], y[rows], count=len(x), reduce=ranks.reduce, **how)

    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(share, (slice(0, 5), slice(5, 12)))
    torch.testing.assert_close([p + q for p, q in zip(first, second, strict=True)], whole)


@pytest.mark.parametrize("form", ["exact", "finite"])
def test_training_both_networks_lowers_the_primary_loss(form: str) -> None:
    """Two rings, which no line divides."""
    torch.manual_seed(0)
    y = torch.arange(64) % 2
    x = F.normalize(torch.randn(64, 2)) * (1.0 + y[:, None]) + 0.1 * torch.randn(64, 2)

    def backbone() -> nn.Module:
        return nn.Sequential(nn.Linear(2, 16), nn.BatchNorm1d(16), nn.ReLU())

    network = MAXLNetwork(backbone(), 16, 2, subclasses=PSI, head="dot")
    generator = LabelGenerator(backbone(), 16, 2, subclasses=PSI)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.9)
    generator_optimizer = torch.optim.SGD(generator.parameters(), lr=0.1)
    losses = []
    for _ in range(50):
        gradients = generator_gradients(network, generator, x, y, rate=0.1, form=form)
        for parameter, gradient in zip(generator.parameters(), gradients, strict=True):
            parameter.grad = gradient
        generator_optimizer.step()
        with torch.no_grad():
            labels = generator(x, y)
        primary, auxiliary = network.both(x)
        loss = focal_loss(primary, y)
        optimizer.zero_grad()
        (loss + focal_loss(auxiliary, labels)).backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.2 * losses[0]


@pytest.mark.parametrize("module", ["losses", "networks"])
def test_examples_run(module: str) -> None:
    result = doctest.testmod(importlib.import_module(f"mn.baselines.maxl.{module}"))
    assert result.attempted > 0
    assert result.failed == 0
