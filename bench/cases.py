"""What is timed: each case makes its inputs and gives the steps to compare, by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bench.measure import Step
from mn import functional
from mn.nn import CosineHead, MetaNeighborhoods, Vanilla
from mn.nn.backbones import Backbone, convnet4, resnet29
from tests import reference

B = 128
WIDTHS = (90, 256, 256, 256, 256, 1)

Variants = dict[str, Callable[[], Step]]


def mlp(*, train: bool) -> Variants:
    """A regressor of 4×256 with d=90, S=1000."""

    def ours() -> Step:
        model = _regressor()
        x, y = _regression_batch()
        if not train:
            model.eval()
            return lambda: model.predict(x)
        return _training_step(list(model.parameters()), lambda: F.mse_loss(model(x), y))

    def plain() -> Step:
        model = _regressor()
        x, y = _regression_batch()
        layers = [(layer.weight, layer.bias) for layer in model.head.linears]

        def outputs() -> Tensor:
            entries = model.dictionary
            return reference.adapted_mlp(
                x, entries.keys, entries.values, layers, alpha=model.alpha(), temperature=0.1
            )

        if not train:
            return torch.no_grad()(outputs)
        return _training_step(list(model.parameters()), lambda: F.mse_loss(outputs(), y))

    return {"mn": ours, "vmap": plain}


def table(*, train: bool) -> Variants:
    """The same regressor as the recipe of tables has it, half the entries dropped, against its MLP alone."""

    def step_of(model: Vanilla | MetaNeighborhoods, rows: Tensor | None) -> Step:
        x, y = _regression_batch()
        if not train:
            model.eval()
            return torch.no_grad()(lambda: model(x))
        optimiser = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)

        def step() -> None:
            optimiser.zero_grad()
            F.mse_loss(model(x, rows), y).backward()
            optimiser.step()

        return step

    def ours() -> Step:
        model = _regressor(dropout=0.5, init="rows", similarity="rms", metric="learned")
        g = torch.Generator().manual_seed(2)
        features, targets = torch.randn(5000, WIDTHS[0], generator=g), torch.randn(5000, 1, generator=g)
        model.dictionary.fill(features, targets, generator=g)
        return step_of(model, torch.arange(B))

    def plain() -> Step:
        return step_of(Vanilla(nn.Identity(), _regressor().head), None)

    return {"mn": ours, "vanilla": plain}


def logits(S: int, C: int, *, batch: int = B, d: int = 256) -> Variants:
    """A training step of the cosine head alone: loss, and gradients of all its inputs."""

    def make(adapt: Callable[..., Tensor]) -> Callable[[], Step]:
        def step() -> Step:
            g = torch.Generator().manual_seed(0)
            z = torch.randn(batch, d, generator=g)
            keys = 0.05 * torch.randn(S, d, generator=g)
            raw = 0.3 * torch.randn(S, C, generator=g)
            weight = torch.randn(C, d, generator=g) / d**0.5
            alpha, scale = torch.tensor(0.05), torch.tensor(10.0)
            leaves = [t.requires_grad_() for t in (z, keys, raw, weight, alpha, scale)]
            y = torch.randint(C, (batch,), generator=g)

            def loss() -> Tensor:
                values = (10 * raw).softmax(1)
                return F.cross_entropy(adapt(z, keys, values, weight, alpha=alpha, scale=scale), y)

            return _training_step(leaves, loss)

        return step

    return {
        "mn": make(functional.adapted_logits),
        "vmap": make(reference.adapted_logits),
        "autograd": make(every_phi_by_autograd),
    }


def every_phi_by_autograd(
    features: Tensor, keys: Tensor, values: Tensor, weight: Tensor, *, alpha: Tensor, scale: Tensor
) -> Tensor:
    """The closed form written down as it stands: every φ_i built, autograd left to itself."""
    ω = functional.attend(features, keys)
    k, n = F.normalize(keys), weight.norm(dim=1, keepdim=True)
    w = weight / n
    E = scale * ((scale * k @ w.T).softmax(1) - values)
    u = (ω.unsqueeze(2) * E).mT @ k  # (B, C, d) from (B, S, C)
    φ = weight - alpha / n * (u - (u * w).sum(2, keepdim=True) * w)
    return scale * (F.normalize(φ, dim=2) @ F.normalize(features).unsqueeze(2)).squeeze(2)


def model(
    backbone: Callable[[], Backbone], S: int, C: int, *, train: bool, as_engine: bool = False
) -> Variants:
    """A backbone on 32×32 images: the whole model against the one without a dictionary.

    ``as_engine`` takes the steps as training does on a CPU: convolutions channels-last, AdamW fused.
    """

    def batch() -> tuple[Tensor, Tensor]:
        g = torch.Generator().manual_seed(0)
        x, y = torch.rand(B, 3, 32, 32, generator=g), torch.randint(C, (B,), generator=g)
        return (x.contiguous(memory_format=torch.channels_last) if as_engine else x), y

    def step_of(made: Vanilla | MetaNeighborhoods, labels: Callable[[Tensor], Tensor]) -> Step:
        x, y = batch()
        if as_engine:
            made.backbone.to(memory_format=torch.channels_last)
        if not train:
            made.eval()
            return torch.no_grad()(lambda: labels(x))
        optimiser = torch.optim.AdamW(made.parameters(), lr=1e-3, fused=as_engine)

        def step() -> None:
            optimiser.zero_grad()
            F.cross_entropy(made(x), y).backward()
            optimiser.step()

        return step

    def ours() -> Step:
        torch.manual_seed(0)
        μ = backbone()
        made = MetaNeighborhoods(μ, num_features=μ.num_features, num_classes=C, S=S)
        return step_of(made, made.predict)

    def plain() -> Step:
        torch.manual_seed(0)
        μ = backbone()
        made = Vanilla(μ, CosineHead(μ.num_features, C))
        return step_of(made, lambda x: made(x).argmax(1))

    return {"mn": ours, "vanilla": plain}


CASES: dict[str, Callable[[], Variants]] = {
    "mlp train": lambda: mlp(train=True),
    "mlp inference": lambda: mlp(train=False),
    "table train": lambda: table(train=True),
    "table inference": lambda: table(train=False),
    "logits 5000 10": lambda: logits(5000, 10),
    "logits 10000 100": lambda: logits(10000, 100),
    "model predict 5000 10": lambda: model(resnet29, 5000, 10, train=False),
    "model predict 10000 100": lambda: model(resnet29, 10000, 100, train=False),
    "model train 5000 10": lambda: model(resnet29, 5000, 10, train=True),
    "convnet4 train 5000 10": lambda: model(convnet4, 5000, 10, train=True, as_engine=True),
}


def _training_step(leaves: list[Tensor], loss: Callable[[], Tensor]) -> Step:
    def step() -> None:
        for t in leaves:
            t.grad = None
        loss().backward()

    return step


def _regressor(*, dropout: float = 0.0, **dictionary: Any) -> MetaNeighborhoods:
    torch.manual_seed(0)
    return MetaNeighborhoods(
        nn.Identity(),
        num_features=WIDTHS[0],
        num_outputs=WIDTHS[-1],
        S=1000,
        T=0.1,
        hidden=WIDTHS[1:-1],
        alpha_init=0.01,
        dropout=dropout,
        **dictionary,
    )


def _regression_batch() -> tuple[Tensor, Tensor]:
    g = torch.Generator().manual_seed(1)
    return torch.randn(B, WIDTHS[0], generator=g), torch.randn(B, WIDTHS[-1], generator=g)
