"""Parameter groups: who has which learning rate, and who decays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from mn.baselines.maxl import MAXLNetwork
from mn.baselines.wide import WideLayer
from mn.engine.config import TrainSettings
from mn.engine.optimizers import build_optimizer
from mn.nn import CosineHead, DotHead, MetaNeighborhoods, Vanilla, insert_ifilm


def settings(**changes: Any) -> TrainSettings:
    return TrainSettings(**{
        "optimizer": "adamw", "lr": 0.01, "momentum": 0.9, "weight_decay": 0.1, "batch_size": 8, "epochs": 1,
        "lr_drops": [], "lr_factor": 0.1, "alpha_lr": 5.0, "dictionary_lr": 3.0, "value_lr": 2.0,
        "metric_lr": 7.0, "clip": 0.0, "patience": 0, "augment": "none", "batchnorm": "running",
        "keep": "last", "snapshots": [], "precision": "fp32",
        **changes,
    })  # fmt: skip


def backbone() -> nn.Sequential:
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))


def classifier(body: nn.Module | None = None, **changes: Any) -> MetaNeighborhoods:
    return MetaNeighborhoods(body or backbone(), num_features=4, num_classes=2, S=5, **changes)


MODELS: dict[str, Callable[[], nn.Module]] = {
    "mn": classifier,
    "mn dot": lambda: classifier(head="dot"),
    "mn ifilm": lambda: classifier(insert_ifilm(backbone())),
    "mn regression": lambda: MetaNeighborhoods(
        nn.Identity(), num_features=4, num_outputs=1, S=5, hidden=(6,), metric="learned"
    ),
    "mn identity": lambda: classifier(nn.Identity()),
    "mn fixed": lambda: classifier(values="fixed", alpha_learned=False),
    "vanilla": lambda: Vanilla(backbone(), DotHead(4, 2)),
    "vanilla ifilm": lambda: Vanilla(insert_ifilm(backbone()), CosineHead(4, 2)),
    "wide": lambda: Vanilla(nn.Sequential(backbone(), WideLayer(4, parameters=17)), CosineHead(4, 2)),
    "maxl": lambda: MAXLNetwork(backbone(), 4, 2, subclasses=2, head="dot"),
}


def option(model: nn.Module, name: str, **changes: Any) -> dict[str, Any]:
    """An option of the optimiser's, by the parameter it is for."""
    names = {parameter: name for name, parameter in model.named_parameters()}
    groups = build_optimizer(model, settings(**changes)).param_groups
    return {names[parameter]: group[name] for group in groups for parameter in group["params"]}


@pytest.mark.parametrize("kind", MODELS)
def test_every_parameter_is_in_one_group(kind: str) -> None:
    model = MODELS[kind]()
    groups = build_optimizer(model, settings()).param_groups
    found = [id(parameter) for group in groups for parameter in group["params"]]
    assert sorted(found) == sorted(id(parameter) for parameter in model.parameters())
    assert all(group["params"] for group in groups)


@pytest.mark.parametrize("kind", MODELS)
def test_keys_values_and_alpha_have_rates_of_their_own(kind: str) -> None:
    factors = {"dictionary.keys": 3, "dictionary.raw_values": 6, "dictionary.log_scale": 7, "alpha.a": 5}
    for name, lr in option(MODELS[kind](), "lr").items():
        assert lr == pytest.approx(0.01 * factors.get(name, 1)), name


@pytest.mark.parametrize(
    ("kind", "decaying"),
    [
        ("mn", {"backbone.0", "backbone.1"}),
        ("mn dot", {"backbone.0", "backbone.1"}),
        ("mn ifilm", {"backbone.0", "backbone.1.0"}),
        ("mn regression", {"head.layers.0", "head.layers.1"}),
        ("mn identity", set()),
        ("vanilla", {"backbone.0", "backbone.1"}),
        ("vanilla ifilm", {"backbone.0", "backbone.1.0"}),
        ("wide", {"backbone.0.0", "backbone.0.1", "backbone.1"}),
    ],
)
def test_networks_decay_but_not_dictionary_alpha_linear_heads_and_ifilm(
    kind: str, decaying: set[str]
) -> None:
    decay = option(MODELS[kind](), "weight_decay")
    assert set(decay.values()) <= {0.0, 0.1}
    assert {name.rpartition(".")[0] for name, value in decay.items() if value} == decaying
    assert {name.rpartition(".")[0] for name, value in decay.items() if not value}.isdisjoint(decaying)


@pytest.mark.parametrize("kind", MODELS)
def test_the_first_group_has_the_networks_rate(kind: str) -> None:
    """It is the one that is shown."""
    assert build_optimizer(MODELS[kind](), settings()).param_groups[0]["lr"] == 0.01


def test_frozen_parameters_are_left_out() -> None:
    model = classifier()
    model.backbone.requires_grad_(False)
    assert {name.split(".")[0] for name in option(model, "lr")} == {"dictionary", "head", "alpha"}


@pytest.mark.parametrize(
    ("name", "kind"),
    [("sgd", torch.optim.SGD), ("adam", torch.optim.Adam), ("adamw", torch.optim.AdamW)],
)
def test_the_optimiser_is_the_one_named(name: str, kind: type[torch.optim.Optimizer]) -> None:
    assert type(build_optimizer(classifier(), settings(optimizer=name))) is kind


def test_sgd_has_its_momentum() -> None:
    assert set(option(classifier(), "momentum", optimizer="sgd").values()) == {0.9}
