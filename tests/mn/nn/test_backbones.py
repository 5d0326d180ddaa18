"""Every registered backbone: sizes, gradients, and where iFiLM goes."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from mn.nn import IFiLM, insert_ifilm
from mn.nn.backbones import BACKBONES

FEATURES = {"convnet4": 192, "resnet29": 256, "resnet56": 256, "densenet40": 258}
FILMS = {"convnet4": 4, "resnet29": 31, "resnet56": 58, "densenet40": 75}


def test_the_sizes_above_are_of_all_there_are() -> None:
    assert FEATURES.keys() == FILMS.keys() == BACKBONES.keys()


@pytest.mark.parametrize("size", [8, 15])
@pytest.mark.parametrize("name", BACKBONES)
def test_features_and_gradients(name: str, size: int) -> None:
    backbone = BACKBONES[name](in_channels=1)
    z = backbone(torch.randn(2, 1, size, size))
    assert z.shape == (2, FEATURES[name]) == (2, backbone.num_features)
    z.square().sum().backward()
    assert all(p.grad is not None and bool(p.grad.isfinite().all()) for p in backbone.parameters())


@pytest.mark.parametrize("name", BACKBONES)
def test_features_have_both_signs_but_for_a_last_relu(name: str) -> None:
    images = torch.randn(4, 3, 8, 8)
    assert BACKBONES[name]()(images).min().item() < 0
    assert BACKBONES[name](last_relu=True)(images).min().item() >= 0


@pytest.mark.parametrize("name", BACKBONES)
def test_ifilm_goes_behind_every_batch_norm(name: str) -> None:
    backbone = insert_ifilm(BACKBONES[name]())
    assert sum(isinstance(m, IFiLM) for m in backbone.modules()) == FILMS[name]
    assert backbone(torch.randn(2, 3, 8, 8)).shape == (2, FEATURES[name])


@pytest.mark.parametrize("name", BACKBONES)
def test_batch_norms_average_as_the_paper(name: str) -> None:
    norms = [m for m in BACKBONES[name]().modules() if isinstance(m, nn.BatchNorm2d)]
    assert {m.momentum for m in norms} == {0.1}
