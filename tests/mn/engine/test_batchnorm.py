"""BatchNorm's statistics recomputed: by hand, and with nothing else changed."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn

from mn.engine.batchnorm import recompute_statistics

torch.manual_seed(0)
BATCHES = [3 * torch.randn(size, 3) + 1 for size in (8, 8, 5)]


def network() -> nn.Sequential:
    torch.manual_seed(1)
    made = nn.Sequential(
        nn.Linear(3, 4), nn.BatchNorm1d(4, momentum=0.3), nn.ReLU(), nn.Dropout(0.5), nn.Linear(4, 2),
        nn.BatchNorm1d(2),
    )  # fmt: skip
    made(BATCHES[0])  # statistics that are to go
    return made


def mean_over_batches(of: list[Tensor]) -> tuple[Tensor, Tensor]:
    """Means and unbiased variances of each batch, averaged with equal weights."""
    return torch.stack([h.mean(0) for h in of]).mean(0), torch.stack([h.var(0) for h in of]).mean(0)


@torch.no_grad()
def test_statistics_are_means_over_the_batches() -> None:
    backbone = network()
    nn.init.normal_(backbone[1].weight)
    recompute_statistics(backbone, BATCHES, backbone)
    first = [backbone[0](x) for x in BATCHES]
    # a batch goes on as the first BatchNorm leaves it in training: by its own mean and (biased) variance
    second = []
    for h in first:
        normalised = (h - h.mean(0)) / (h.var(0, unbiased=False) + 1e-5).sqrt()
        second.append(backbone[4]((backbone[1].weight * normalised + backbone[1].bias).relu()))
    for layer, inputs in ((backbone[1], first), (backbone[5], second)):
        mean, variance = mean_over_batches(inputs)
        torch.testing.assert_close(layer.running_mean, mean)
        torch.testing.assert_close(layer.running_var, variance)


def test_dropout_is_off() -> None:
    backbone = nn.Sequential(nn.Dropout(0.9), nn.BatchNorm1d(3))
    recompute_statistics(backbone, BATCHES, backbone)
    mean, variance = mean_over_batches(BATCHES)
    torch.testing.assert_close(backbone[1].running_mean, mean)
    torch.testing.assert_close(backbone[1].running_var, variance)


def test_doing_it_twice_is_doing_it_once() -> None:
    backbone = network()
    recompute_statistics(backbone, BATCHES, backbone)
    once = copy.deepcopy(backbone.state_dict())
    recompute_statistics(backbone, BATCHES, backbone)
    for name, tensor in backbone.state_dict().items():
        assert torch.equal(tensor, once[name]), name


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("fails", [False, True])
def test_all_but_the_statistics_is_as_before(training: bool, fails: bool) -> None:
    backbone = network().train(training)
    backbone[3].train(not training)  # a module in a mode of its own keeps it
    backbone[5].train(not training)
    modes = [module.training for module in backbone.modules()]
    parameters = [p.detach().clone() for p in backbone.parameters()]

    def forward(x: Tensor) -> None:
        backbone(x)
        if fails:
            raise RuntimeError("out of memory")

    if fails:
        with pytest.raises(RuntimeError, match="out of memory"):
            recompute_statistics(backbone, BATCHES, forward)
    else:
        recompute_statistics(backbone, BATCHES, forward)
    assert [module.training for module in backbone.modules()] == modes
    assert (backbone[1].momentum, backbone[5].momentum) == (0.3, 0.1)
    assert all(torch.equal(p, old) for p, old in zip(backbone.parameters(), parameters, strict=True))
    assert all(p.requires_grad and p.grad is None for p in backbone.parameters())


def test_a_backbone_without_batchnorm_is_left_alone() -> None:
    backbone = nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4))
    calls: list[Tensor] = []
    recompute_statistics(backbone, BATCHES, calls.append)
    assert calls == []
    assert all(module.training for module in backbone.modules())
