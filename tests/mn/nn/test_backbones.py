"""The paper's backbones layer by layer and in numbers, where iFiLM goes, and torchvision's networks."""

from __future__ import annotations

import doctest
import importlib
import pkgutil
import subprocess
import sys

import pytest
import torch
import torch.nn.functional as F
import torchvision
from torch import Tensor, nn

import mn.nn.backbones
from mn.backbone_names import OWN, check_backbone, torchvision_classifiers
from mn.errors import MNError
from mn.nn import IFiLM, MetaNeighborhoods, insert_ifilm
from mn.nn.backbones import BACKBONES, Backbone, TorchvisionBackbone, build_backbone

FEATURES = {"convnet4": 192, "densenet40": 258, "resnet29": 256, "resnet56": 256}

# One of each way to end in a classifier; vit is not here because it takes no 32×32 images.
TORCHVISION = {
    "torchvision:resnet18": 512,
    "torchvision:mobilenet_v3_small": 1024,
    "torchvision:densenet121": 1024,
    "torchvision:vgg11_bn": 4096,
    "torchvision:convnext_tiny": 768,
    "torchvision:squeezenet1_1": 512,
    "torchvision:regnet_y_400mf": 440,
}


# The paper's backbones in numbers. `weights` are those of convolutions and BatchNorms, written out from
# the description; `places` the channels of every map that iFiLM modulates, in order.


def weights_convnet4(channels: int) -> int:
    convolutions = 9 * (channels * 24 + 24 * 96 + 96 * 192 + 192 * 192)
    return convolutions + 2 * (24 + 96 + 192 + 192)


def places_convnet4() -> list[int]:
    return [24, 96, 192, 192]


def weights_resnet(channels: int, blocks: int) -> int:
    total = 9 * channels * 16
    for before, after in [(16, 64), (64, 128), (128, 256)]:
        inner = before
        middle = 2 * inner + 9 * inner * inner + 2 * inner + inner * after  # BN, 3×3, BN, 1×1
        total += 2 * before + before * inner + middle + before * after  # the last: the projection
        total += (blocks - 1) * (2 * after + after * inner + middle)
    return total + 2 * 256


def places_resnet(blocks: int) -> list[int]:
    # first block: three layers and the shortcut; then three layers a block; at the end the final BatchNorm
    return [
        *[16, 16, 16, 64, *(blocks - 1) * [64, 16, 16]],
        *[64, 64, 64, 128, *(blocks - 1) * [128, 64, 64]],
        *[128, 128, 128, 256, *(blocks - 1) * [256, 128, 128]],
        256,
    ]


def weights_densenet40(channels: int) -> int:
    total = 9 * channels * 24
    for start in (24, 84, 114):  # 24 + 12·12 = 168, halved 84; 84 + 144 = 228, halved 114; 114 + 144 = 258
        for width in range(start, start + 144, 12):
            total += 2 * width + width * 48 + 2 * 48 + 9 * 48 * 12
    return total + (2 * 168 + 168 * 84) + (2 * 228 + 228 * 114) + 2 * 258


def places_densenet40() -> list[int]:
    def block(start: int) -> list[int]:
        return [channels for width in range(start, start + 144, 12) for channels in (width, 48)]

    return [*block(24), 168, *block(84), 228, *block(114), 258]


def weights(name: str, channels: int) -> int:
    return {
        "convnet4": weights_convnet4(channels),
        "densenet40": weights_densenet40(channels),
        "resnet29": weights_resnet(channels, blocks=3),
        "resnet56": weights_resnet(channels, blocks=6),
    }[name]


PLACES = {
    "convnet4": places_convnet4(),
    "densenet40": places_densenet40(),
    "resnet29": places_resnet(blocks=3),
    "resnet56": places_resnet(blocks=6),
}
# 4 layers; 3·12 pairs, 2 transitions, the final one; 3 layers in each block, 3 shortcuts, the final one
COUNTS = {"convnet4": 4, "densenet40": 2 * 36 + 2 + 1, "resnet29": 27 + 3 + 1, "resnet56": 54 + 3 + 1}


def count(module: nn.Module) -> int:
    return sum(p.numel() for p in module.parameters())


def films(module: nn.Module) -> list[IFiLM]:
    return [m for m in module.modules() if isinstance(m, IFiLM)]


def randomise(module: nn.Module) -> nn.Module:
    """Give BatchNorms and iFiLMs something to do that shows where they stand."""
    for m in module.modules():
        if isinstance(m, nn.BatchNorm2d) and m.running_mean is not None and m.running_var is not None:
            for tensor in (m.running_mean, m.bias):
                nn.init.normal_(tensor, std=0.3)
            for tensor in (m.running_var, m.weight):
                nn.init.uniform_(tensor, 0.5, 1.5)
        if isinstance(m, IFiLM):
            nn.init.normal_(m.gammas, std=0.3)
            nn.init.normal_(m.betas, std=0.3)
    return module


def assert_learns(module: nn.Module, output: Tensor) -> None:
    """Backward reaches every parameter with a finite gradient."""
    module.zero_grad()
    output.square().sum().backward()
    bad = [n for n, p in module.named_parameters() if p.grad is None or not bool(p.grad.sum().isfinite())]
    assert bad == []


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


@pytest.fixture(scope="module", params=TORCHVISION)
def foreign(request: pytest.FixtureRequest) -> TorchvisionBackbone:
    """Built once for all tests, for the largest takes seconds."""
    backbone = build_backbone(request.param, 3)
    assert isinstance(backbone, TorchvisionBackbone)
    return backbone


# --- the paper's ---------------------------------------------------------------------------------------


def test_the_names_are_those_of_the_registry() -> None:
    assert tuple(BACKBONES) == OWN
    assert FEATURES.keys() == PLACES.keys() == BACKBONES.keys()


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("name", OWN)
def test_number_of_weights(name: str, channels: int) -> None:
    assert count(build_backbone(name, channels)) == weights(name, channels)


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("name", OWN)
def test_number_of_weights_with_ifilm(name: str, channels: int) -> None:
    # ten keys, scales and shifts as wide as the map, and the temperature
    modulation = sum(3 * 10 * width + 1 for width in PLACES[name])
    made = insert_ifilm(build_backbone(name, channels), S_l=10)
    assert count(made) == weights(name, channels) + modulation


@pytest.mark.parametrize("name", OWN)
def test_ifilm_is_in_the_paper_s_places(name: str) -> None:
    found = films(insert_ifilm(build_backbone(name, 3)))
    assert len(found) == COUNTS[name]
    assert [film.num_channels for film in found] == PLACES[name]


@pytest.mark.parametrize("name", OWN)
def test_ifilm_is_behind_every_batch_norm(name: str) -> None:
    made = insert_ifilm(build_backbone(name, 3))
    pairs = [m for m in made.modules() if isinstance(m, nn.Sequential) and isinstance(m[-1], IFiLM)]
    modulated = [m[0] for m in pairs if isinstance(m[0], nn.BatchNorm2d)]
    assert modulated == [m for m in made.modules() if isinstance(m, nn.BatchNorm2d)]


@pytest.mark.parametrize("name", ["resnet29", "resnet56"])
def test_the_first_convolution_of_a_resnet_has_no_ifilm(name: str) -> None:
    backbone = insert_ifilm(build_backbone(name, 3))
    assert isinstance(backbone, Backbone)
    assert isinstance(backbone.layers[0], nn.Conv2d)
    assert films(backbone.layers[0]) == []


@pytest.mark.parametrize("name", OWN)
def test_ifilm_changes_nothing_at_first(name: str) -> None:
    backbone, images = randomise(build_backbone(name, 3)).eval(), torch.rand(2, 3, 8, 8)
    before = backbone(images)
    torch.testing.assert_close(insert_ifilm(backbone)(images), before)


@pytest.mark.parametrize(
    ("channels", "size"), [(1, 8), (3, 15), (1, 32), (3, 32), (3, 64)], ids=lambda value: str(value)
)
@pytest.mark.parametrize("name", OWN)
def test_features(name: str, channels: int, size: int) -> None:
    backbone = build_backbone(name, channels).eval()
    with torch.inference_mode():
        z = backbone(torch.rand(1, channels, size, size))
    assert z.shape == (1, FEATURES[name]) == (1, backbone.num_features)


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("name", OWN)
def test_every_parameter_learns(name: str, channels: int) -> None:
    backbone = build_backbone(name, channels)
    assert_learns(backbone, backbone(torch.rand(2, channels, 8, 8)))


@pytest.mark.parametrize("name", OWN)
def test_inference_is_deterministic(name: str) -> None:
    backbone, images = build_backbone(name, 3).eval(), torch.rand(2, 3, 8, 8)
    assert torch.equal(backbone(images), backbone(images))


@pytest.mark.parametrize("last_relu", [False, True])
@pytest.mark.parametrize("name", OWN)
def test_features_have_both_signs_but_for_a_last_relu(name: str, last_relu: bool) -> None:
    z = build_backbone(name, 3, last_relu=last_relu)(torch.randn(4, 3, 8, 8))
    assert (z.min().item() < 0) != last_relu


@pytest.mark.parametrize("name", OWN)
def test_batch_norms_average_as_tensorflow_s_with_decay_0_9(name: str) -> None:
    norms = [m for m in build_backbone(name, 3).modules() if isinstance(m, nn.BatchNorm2d)]
    assert {(m.momentum, m.eps) for m in norms} == {(0.1, 1e-3)}


@pytest.mark.parametrize("name", OWN)
def test_convolutions_start_as_xavier_s(name: str) -> None:
    for m in build_backbone(name, 3).modules():
        if isinstance(m, nn.Conv2d):
            area = m.kernel_size[0] * m.kernel_size[1]
            bound = (6 / (area * (m.in_channels + m.out_channels))) ** 0.5
            assert 0.8 * bound < m.weight.abs().max().item() <= bound


def test_densenet_drops_a_fifth() -> None:
    drops = [m.p for m in build_backbone("densenet40", 3).modules() if isinstance(m, nn.Dropout)]
    assert drops == [0.2] * (36 + 2)


class Written:
    """The networks as their description reads, on the weights of a backbone taken in order."""

    def __init__(self, backbone: nn.Module) -> None:
        self.convolutions = iter([m for m in backbone.modules() if isinstance(m, nn.Conv2d)])
        self.norms = iter([m for m in backbone.modules() if isinstance(m, nn.BatchNorm2d)])

    def conv(self, x: Tensor, stride: int = 1) -> Tensor:
        weight = next(self.convolutions).weight
        return F.conv2d(x, weight, stride=stride, padding=weight.shape[-1] // 2)

    def bn(self, x: Tensor) -> Tensor:
        m = next(self.norms)
        return F.batch_norm(x, m.running_mean, m.running_var, m.weight, m.bias, eps=1e-3)

    def convnet4(self, x: Tensor) -> Tensor:
        for _ in range(2):
            x = F.max_pool2d(F.relu(self.bn(self.conv(x))), 3, stride=2, padding=1)
        x = F.relu(self.bn(self.conv(x)))
        return self.bn(self.conv(x)).mean((2, 3))

    def densenet40(self, x: Tensor) -> Tensor:
        x = self.conv(x)
        for block in range(3):
            for _ in range(12):
                h = self.conv(F.relu(self.bn(x)))
                x = torch.cat([x, self.conv(F.relu(self.bn(h)))], 1)
            if block < 2:
                x = F.avg_pool2d(self.conv(F.relu(self.bn(x))), 2)
        return self.bn(x).mean((2, 3))

    def resnet(self, x: Tensor, blocks: int) -> Tensor:
        x = self.conv(x)
        for stage in range(3):
            for block in range(blocks):
                stride = 2 if block == 0 and stage > 0 else 1
                a = F.relu(self.bn(x))
                if stage == block == 0:
                    x = a  # both paths start behind the first activation
                h = self.conv(a, stride)
                h = self.conv(F.relu(self.bn(h)))
                h = self.conv(F.relu(self.bn(h)))
                x = h + (self.conv(x, stride) if block == 0 else x)
        return self.bn(x).mean((2, 3))

    def resnet29(self, x: Tensor) -> Tensor:
        return self.resnet(x, 3)

    def resnet56(self, x: Tensor) -> Tensor:
        return self.resnet(x, 6)


@pytest.mark.parametrize("name", OWN)
def test_layers_stand_in_the_described_order(name: str) -> None:
    backbone, images = randomise(build_backbone(name, 3)).eval(), torch.rand(2, 3, 12, 12)
    written = Written(backbone)
    networks = {
        "convnet4": written.convnet4,
        "densenet40": written.densenet40,
        "resnet29": written.resnet29,
        "resnet56": written.resnet56,
    }
    torch.testing.assert_close(backbone(images), networks[name](images))


@pytest.mark.parametrize("name", [*OWN, "torchvision:resnet18"])
def test_channels_last_gives_the_same(name: str) -> None:
    backbone = randomise(insert_ifilm(build_backbone(name, 3))).eval()
    images = torch.rand(2, 3, 16, 16)
    expected = backbone(images)
    backbone = backbone.to(memory_format=torch.channels_last)
    given = backbone(images.to(memory_format=torch.channels_last))
    torch.testing.assert_close(given, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("name", ["convnet4", "resnet29", "torchvision:resnet18"])
def test_the_model_takes_a_step_on_it(name: str, channels: int) -> None:
    backbone = insert_ifilm(build_backbone(name, channels), S_l=2)
    model = MetaNeighborhoods(backbone, num_features=backbone.num_features, num_classes=3, S=8)
    logits = model(torch.rand(2, channels, 32, 32))
    assert logits.shape == (2, 3)
    assert_learns(model, logits)


# --- torchvision's -------------------------------------------------------------------------------------


def test_features_of_torchvision(foreign: TorchvisionBackbone) -> None:
    wanted = TORCHVISION[f"torchvision:{foreign.name}"]
    z = foreign.eval()(torch.rand(2, 3, 32, 32))
    assert z.shape == (2, wanted) == (2, foreign.num_features)


def test_every_parameter_of_torchvision_learns(foreign: TorchvisionBackbone) -> None:
    assert_learns(foreign, foreign.train()(torch.rand(2, 3, 32, 32)))


def test_inference_of_torchvision_is_deterministic(foreign: TorchvisionBackbone) -> None:
    images = torch.rand(2, 3, 32, 32)
    assert torch.equal(foreign.eval()(images), foreign(images))


def test_a_network_of_torchvision_is_its_own_without_the_last_layer() -> None:
    torch.manual_seed(3)
    backbone = build_backbone("torchvision:resnet18", 3).eval()
    torch.manual_seed(3)
    whole = torchvision.models.resnet18().eval()
    images = torch.rand(2, 3, 32, 32)
    torch.testing.assert_close(whole.fc(backbone(images)), whole(images))


@pytest.mark.parametrize("name", ["torchvision:resnet18", "torchvision:squeezenet1_1"])
def test_a_grey_image_counts_as_three_equal_channels(name: str) -> None:
    torch.manual_seed(3)
    grey = build_backbone(name, 1).eval()
    torch.manual_seed(3)
    coloured = build_backbone(name, 3).eval()
    images = torch.rand(2, 1, 32, 32)
    torch.testing.assert_close(grey(images), coloured(images.expand(-1, 3, -1, -1)), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", ["googlenet", "inception_v3", "swin_t", "vit_b_16", "efficientnet_b0"])
def test_other_ends_are_found(name: str) -> None:
    with torch.device("meta"):  # shapes alone: these are large
        backbone = build_backbone(f"torchvision:{name}", 1)
        assert backbone(torch.empty(2, 1, 224, 224)).shape == (2, backbone.num_features)


@pytest.mark.parametrize("name", ["inception_v3", "vit_b_16", "alexnet"])
def test_a_size_that_a_network_refuses_is_named(name: str) -> None:
    with torch.device("meta"):
        backbone = build_backbone(f"torchvision:{name}", 3)
        with pytest.raises(MNError, match=f"torchvision:{name} does not take images of 32×32") as caught:
            backbone(torch.empty(2, 3, 32, 32))
    assert "\n" not in str(caught.value)


# --- names ---------------------------------------------------------------------------------------------


def test_torchvision_s_classifiers_are_those_it_lists() -> None:
    listed = torchvision.models.list_models(module=torchvision.models)
    assert list(torchvision_classifiers()) == sorted(listed)


@pytest.mark.parametrize("name", [*OWN, "torchvision:resnet18", "torchvision:vit_b_16"])
def test_known_names_pass(name: str) -> None:
    check_backbone(name)


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("resnet28", "resnet29"),
        ("resnet18", "torchvision:resnet18"),
        ("torchvision:resnet19", "torchvision:resnet18"),
        ("torchvision:convnet4", "torchvision:convnext_"),
        ("torchvision:fcn_resnet50", "torchvision:resnet50"),
        ("torchvision:quantized_resnet18", "torchvision:resnet18"),
    ],
)
def test_the_nearest_name_is_suggested(name: str, near: str) -> None:
    with pytest.raises(MNError, match=rf"backbone '{name}' is not known \(did you mean {near}"):
        build_backbone(name, 3)


@pytest.mark.parametrize("name", ["", "torchvision:", "torchvision:raft_large", "torchvision:s3d", "os.path"])
def test_other_names_are_refused_with_what_is_allowed(name: str) -> None:
    with pytest.raises(MNError, match=r"allowed are convnet4, .* and torchvision:NAME") as caught:
        build_backbone(name, 3)
    assert "\n" not in str(caught.value)


def test_names_are_checked_without_pytorch() -> None:
    code = (
        "import sys; from mn.backbone_names import check_backbone; check_backbone('torchvision:resnet18'); "
        "sys.exit('torch' in sys.modules or 'torchvision' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_torchvision_is_imported_only_for_its_own() -> None:
    code = (
        "import sys; from mn.nn.backbones import build_backbone; build_backbone('convnet4', 1); "
        "sys.exit('torchvision' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


PARTS = [f"mn.nn.backbones.{m.name}" for m in pkgutil.iter_modules(mn.nn.backbones.__path__)]


@pytest.mark.parametrize("name", ["mn.backbone_names", *PARTS])
def test_examples_run(name: str) -> None:
    assert doctest.testmod(importlib.import_module(name)).failed == 0
