"""Every method on every backbone: it builds, takes a step, and a file of it predicts the same."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from mn.data.loader import Batch
from mn.data.split import Standardisation
from mn.engine.build import ModelShape, build_generator, build_model
from mn.engine.config import RunConfig
from mn.engine.distributed import Ranks
from mn.engine.learners import make_learner
from mn.engine.modelfile import load_model, save_model
from mn.errors import MNError
from tests.mn.engine.make import EXECUTION, history, make_config, make_images, run

CPU = torch.device("cpu")
METHODS = ("vanilla", "vanilla_ifilm", "mn", "mn_ifilm", "maxl", "wide")
SIDES = {"convnet4": 8, "densenet40": 8, "resnet29": 8, "resnet56": 8, "torchvision:resnet18": 32}
ROWS, CLASSES, TARGETS = 4, 3, 2


@dataclass(frozen=True)
class Case:
    backbone: str
    method: str
    head: str
    channels: int = 0  # of images; tables have none

    def __str__(self) -> str:
        return f"{self.backbone}-{self.method}-{self.head}" + (f"-{self.channels}" if self.channels else "")

    @property
    def shape(self) -> ModelShape:
        outputs = {"num_targets": TARGETS} if self.head == "mlp" else {"num_classes": CLASSES}
        side = SIDES.get(self.backbone, 0)
        return ModelShape((self.channels, side, side) if self.channels else (5,), **outputs)


IMAGES = [
    Case(backbone, method, head, channels=1 if place % 2 else 3)
    for place, ((method, head), backbone) in enumerate(product(product(METHODS, ("cosine", "dot")), SIDES))
]
# iFiLM sits behind BatchNorms, which a table's identity has none of.
TABLES = [
    Case("identity", method, head)
    for method, head in product(("vanilla", "mn", "maxl", "wide"), ("cosine", "dot"))
]
REGRESSION = [Case("identity", method, "mlp") for method in ("vanilla", "mn")]


@dataclass(frozen=True)
class Stepped:
    """A model after one step, and what there was before it."""

    config: RunConfig
    shape: ModelShape
    model: nn.Module
    before: dict[str, Tensor]
    loss: float
    x: Tensor


@pytest.fixture(scope="module", params=[*IMAGES, *TABLES, *REGRESSION], ids=str)
def stepped(request: pytest.FixtureRequest) -> Stepped:
    case: Case = request.param
    config = make_config(
        case.method, regression=case.head == "mlp", backbone=case.backbone, head=case.head, S=8
    )
    torch.manual_seed(0)
    model = build_model(config, case.shape)
    generator = build_generator(config, case.shape)
    learner = make_learner(config, model, generator, CPU, nullcontext, Ranks())
    before = {name: tensor.detach().clone() for name, tensor in model.named_parameters()}
    x = torch.rand(ROWS, *case.shape.input_shape)
    y = torch.rand(ROWS, TARGETS) if case.head == "mlp" else torch.arange(ROWS) % CLASSES
    loss = learner.step(Batch(x, y, torch.arange(ROWS), None), ROWS).item()
    return Stepped(config, case.shape, model, before, loss, x)


def test_loss_is_finite(stepped: Stepped) -> None:
    assert torch.tensor(stepped.loss).isfinite()


def test_every_parameter_has_a_gradient_and_moves_with_it(stepped: Stepped) -> None:
    trained = {name: p for name, p in stepped.model.named_parameters() if p.requires_grad}
    assert [name for name, p in trained.items() if p.grad is None] == [], "no gradient"
    # Keys of iFiLM have one of zeros at first: γ and β, which they choose from, are still all the same.
    still = [name for name, p in trained.items() if torch.equal(p, stepped.before[name])]
    assert [name for name in still if trained[name].grad.any()] == []  # type: ignore[union-attr]
    assert len(still) < len(trained)


def test_model_file_predicts_the_same(stepped: Stepped, tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    save_model(path, stepped.model.state_dict(), stepped.config, stepped.shape, Standardisation())
    with torch.inference_mode():
        expected = stepped.model.eval()(stepped.x)
        assert expected.shape == (ROWS, stepped.shape.num_classes or stepped.shape.num_targets)
        assert torch.equal(load_model(path)(stepped.x), expected)


@pytest.mark.parametrize("method", ["vanilla", "mn_ifilm", "maxl"])
def test_bf16_trains_on_a_cpu(tmp_path: Path, method: str) -> None:
    config = make_config(method, backbone="convnet4", epochs=1, precision="bf16")
    (row,) = history(run(tmp_path, config, make_images(16)))
    assert torch.tensor([row["train_loss"], row["val_loss"]]).isfinite().all()


def test_backbone_is_compiled_on_request_and_not_by_itself_on_a_cpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the backend that runs what was traced as it is: a C++ compiler takes a minute or more."""
    compiled: list[nn.Module] = []
    genuine = nn.Module.compile

    def traced(module: nn.Module) -> None:
        compiled.append(module)
        genuine(module, backend="eager")

    monkeypatch.setattr(nn.Module, "compile", traced)
    config, data = make_config("vanilla", backbone="convnet4", epochs=1), make_images(16)
    losses = []
    for choice, times in (("auto", 0), (False, 0), (True, 1)):
        compiled.clear()
        execution = EXECUTION.model_copy(update={"compile": choice})
        losses.append(history(run(tmp_path / str(choice), config, data, execution=execution))[0]["val_loss"])
        assert len(compiled) == times, choice
    assert losses == pytest.approx([losses[0]] * 3, rel=1e-5)


def test_ifilm_is_refused_where_there_is_no_batchnorm() -> None:
    """It would do nothing there, and its row of a table would be vanilla's."""
    config = make_config("vanilla_ifilm", backbone="torchvision:squeezenet1_1")
    with pytest.raises(MNError, match=r"made, vanilla_ifilm: iFiLM .* torchvision:squeezenet1_1 has none"):
        build_model(config, ModelShape((3, 32, 32), num_classes=2))
