"""Batched augmentation: each operation against torchvision's, the draws against what they should be."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor
from torchvision.transforms import AutoAugment, AutoAugmentPolicy, InterpolationMode
from torchvision.transforms import functional as F
from torchvision.transforms.autoaugment import _apply_op

from mn.data.augment import Policy, augment, crop_and_flip, cutout
from mn.data.autoaugment import _UNSIGNED, CIFAR10_POLICY, OPERATIONS, _variants, autoaugment, magnitude
from mn.errors import MNError

THEIRS = {
    "shear_x": "ShearX",
    "shear_y": "ShearY",
    "translate_x": "TranslateX",
    "translate_y": "TranslateY",
    "rotate": "Rotate",
    "brightness": "Brightness",
    "color": "Color",
    "contrast": "Contrast",
    "sharpness": "Sharpness",
    "posterize": "Posterize",
    "solarize": "Solarize",
    "autocontrast": "AutoContrast",
    "equalize": "Equalize",
    "invert": "Invert",
}


def images(count: int = 12, channels: int = 3, size: int = 32) -> Tensor:
    """Noise, a flat image, two values only, a gradient, a dark and a narrow range."""
    generator = torch.Generator().manual_seed(0)
    batch = torch.randint(0, 256, (count, channels, size, size), generator=generator, dtype=torch.uint8)
    batch[0] = 77
    batch[1] = (batch[1] > 128) * 255
    batch[2] = torch.arange(size, dtype=torch.uint8).expand(channels, size, size) * (256 // size)
    batch[3] //= 8
    batch[4] = batch[4] // 16 + 100
    batch[5, :, : size // 2] = 0
    return batch


def theirs(name: str, image: Tensor, amount: float) -> Tensor:
    return _apply_op(image, THEIRS[name], amount, InterpolationMode.NEAREST, None)


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("name", sorted(OPERATIONS))
def test_each_operation_gives_torchvisions_bytes(name: str, channels: int) -> None:
    batch = images(channels=channels)
    for level in range(1, 11):
        for strength in (level, -level):
            amount = magnitude(name, strength, batch.shape)
            ours = OPERATIONS[name](batch.clone(), amount)
            reference = torch.stack([theirs(name, image, amount) for image in batch])
            assert torch.equal(ours, reference), (name, strength)


@pytest.mark.parametrize("size", [17, 64])
def test_operations_work_at_other_sizes(size: int) -> None:
    batch = images(8, size=size)
    for name, operation in OPERATIONS.items():
        amount = magnitude(name, 6, batch.shape)
        reference = torch.stack([theirs(name, image, amount) for image in batch])
        assert torch.equal(operation(batch.clone(), amount), reference), name


def test_magnitudes_and_policy_are_torchvisions() -> None:
    reference = AutoAugment(AutoAugmentPolicy.CIFAR10)
    ours = [tuple((THEIRS[name], p, level) for name, p, level in pair) for pair in CIFAR10_POLICY]
    assert ours == reference.policies
    space = reference._augmentation_space(10, (32, 32))
    for name, word in THEIRS.items():
        values, signed = space[word]
        for level in range(10):
            expected = values[level].item() if values.ndim else 0.0
            assert magnitude(name, level + 1, torch.Size((1, 3, 32, 32))) == expected
            if signed:
                assert magnitude(name, -level - 1, torch.Size((1, 3, 32, 32))) == -expected


def test_the_whole_policy_equals_torchvisions_with_the_same_draws() -> None:
    count = 400
    batch = torch.randint(
        0, 256, (count, 3, 32, 32), generator=torch.Generator().manual_seed(1), dtype=torch.uint8
    )
    ours = autoaugment(batch, torch.Generator().manual_seed(2))
    generator = torch.Generator().manual_seed(2)
    choice = torch.randint(25, (count,), generator=generator)
    chance = torch.rand((count, 2), generator=generator)
    sign = torch.randint(2, (count, 2), generator=generator)
    for i in range(count):
        image = batch[i]
        for slot, (name, probability, level) in enumerate(CIFAR10_POLICY[int(choice[i])]):
            if chance[i, slot] <= probability:
                strength = (1 if sign[i, slot] else -1) * ((level or 0) + 1)
                unsigned = name in _UNSIGNED
                image = theirs(
                    name, image, magnitude(name, abs(strength) if unsigned else strength, batch.shape)
                )
        assert torch.equal(image, ours[i])


def test_every_operation_is_drawn_as_often_as_it_should_be() -> None:
    """The share of images that each slot changes, over 20,000 draws."""
    count = 20_000
    batch = torch.randint(
        0, 256, (count, 1, 8, 8), generator=torch.Generator().manual_seed(1), dtype=torch.uint8
    )
    seen: dict[str, int] = dict.fromkeys(OPERATIONS, 0)
    real = dict(OPERATIONS)

    def counting(name: str) -> Callable[[Tensor, float], Tensor]:
        def operation(block: Tensor, amount: float) -> Tensor:
            seen[name] += len(block)
            return real[name](block, amount)

        return operation

    try:
        OPERATIONS.update({name: counting(name) for name in real})
        autoaugment(batch, torch.Generator().manual_seed(3))
    finally:
        OPERATIONS.update(real)
    for name in OPERATIONS:
        expected = sum(p for pair in CIFAR10_POLICY for word, p, _ in pair if word == name) / 25
        spread = 5 * (max(expected, 1e-9) / count) ** 0.5
        assert abs(seen[name] / count - expected) <= spread, name


def test_signs_are_drawn_evenly() -> None:
    assert {name for name, _ in _variants(0)[0]} <= set(OPERATIONS)
    variants, number = _variants(1)
    for row, (_, (name, _, level)) in enumerate(CIFAR10_POLICY):
        plus, minus = (variants[int(number[row, i]) - 1] for i in range(2))
        assert plus == (name, (level or 0) + 1)
        assert minus[1] in (plus[1], -plus[1])


def test_crop_and_flip_are_torchvisions() -> None:
    batch = images(500)
    ours = crop_and_flip(batch, torch.Generator().manual_seed(4), pad=4, flip=True)
    drawn = torch.randint(162, (500,), generator=torch.Generator().manual_seed(4))
    for image, result, draw in zip(batch, ours, drawn.tolist(), strict=True):
        down, right, flipped = draw // 9 % 9 - 4, draw % 9 - 4, draw >= 81
        reference = F.crop(F.pad(image, [4]), 4 - down, 4 - right, 32, 32)
        assert torch.equal(result, F.hflip(reference) if flipped else reference)


def test_crops_and_flips_are_uniform() -> None:
    """Where the one bright pixel of an image lands: every place and side equally often (chi-square)."""
    batch = torch.zeros((16_200, 1, 32, 32), dtype=torch.uint8)
    batch[:, :, 10, 6] = 255
    out = crop_and_flip(batch, torch.Generator().manual_seed(5), pad=4, flip=True)
    y, x = np.divmod(out.flatten(1).int().argmax(1).numpy(), 32)
    counts = np.unique(y * 32 + x, return_counts=True)[1]
    assert len(counts) == 162
    assert ((counts - 100) ** 2 / 100).sum() < 162 + 5 * (2 * 162) ** 0.5


def test_cutout_is_a_clipped_square_at_a_uniform_place() -> None:
    out = cutout(torch.full((4_000, 3, 32, 32), 255, dtype=torch.uint8), torch.Generator().manual_seed(6), 16)
    assert torch.equal(out[:, 0], out[:, 2])
    holes = out[:, 0] == 0
    heights, widths = holes.any(2).sum(1), holes.any(1).sum(1)
    assert torch.equal(holes.sum((1, 2)), heights * widths)
    assert (int(heights.min()), int(heights.max())) == (8, 16)
    # the chance of a pixel to be covered, from 8 of 32 centres at the corner to 16 of 32 in the middle
    share = holes.float().mean(0)
    assert abs(share[0, 0] - (9 / 32) ** 2) < 0.02
    assert abs(share[16, 16] - (16 / 32) ** 2) < 0.04


def test_the_same_seed_gives_the_same_bytes_and_leaves_the_images_alone() -> None:
    batch = images(300)
    before = batch.clone()
    torch.manual_seed(1)
    first = augment(batch, torch.Generator().manual_seed(7), Policy(flip=True))
    state = torch.get_rng_state()
    torch.manual_seed(2)
    assert torch.equal(first, augment(batch, torch.Generator().manual_seed(7), Policy(flip=True)))
    assert not torch.equal(first, augment(batch, torch.Generator().manual_seed(8), Policy(flip=True)))
    assert torch.equal(batch, before)
    torch.manual_seed(1)
    assert torch.equal(state, torch.get_rng_state())


def test_a_policy_of_nothing_changes_nothing() -> None:
    batch = images()
    policy = Policy(flip=False, pad=0, autoaugment=False, cutout=0)
    assert torch.equal(augment(batch, torch.Generator(), policy), batch)
    with pytest.raises(MNError, match="expected uint8"):
        augment(batch.float(), torch.Generator(), policy)
    with pytest.raises(MNError, match="negative"):
        Policy(flip=True, pad=-1)
