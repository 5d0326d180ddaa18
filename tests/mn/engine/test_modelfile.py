"""A trained model in one file: the same predictions after the round trip, on raw inputs."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from mn.data.split import Standardisation
from mn.engine.build import ModelShape, build_model
from mn.engine.modelfile import load_model, save_model
from mn.errors import MNError
from tests.mn.engine.make import make_config


@pytest.mark.parametrize("method", ["vanilla", "mn"])
def test_round_trip_gives_the_same_outputs(tmp_path: Path, method: str) -> None:
    config, shape = make_config(method), ModelShape((3,), num_classes=2)
    model = build_model(config, shape).eval()
    save_model(tmp_path / "model", model.state_dict(), config, shape, Standardisation())
    x = torch.randn(5, 3)
    assert torch.equal(load_model(tmp_path / "model")(x), model(x))


def test_raw_rows_in_targets_in_their_own_unit_out(tmp_path: Path) -> None:
    config, shape = make_config(regression=True), ModelShape((3,), num_targets=1)
    model = build_model(config, shape).eval()
    mean, std = torch.tensor([1.0, 2.0, 3.0]).double(), torch.tensor([2.0, 2.0, 4.0]).double()
    scale = Standardisation(mean, std, torch.tensor([10.0]).double(), torch.tensor([5.0]).double())
    save_model(tmp_path / "model", model.state_dict(), config, shape, scale)
    x = torch.randn(5, 3)
    raw = x * std + mean
    torch.testing.assert_close(
        load_model(tmp_path / "model")(raw).float(), model(x) * 5.0 + 10.0, rtol=1e-5, atol=1e-5
    )


def test_loading_draws_no_random_numbers_of_the_caller(tmp_path: Path) -> None:
    config, shape = make_config(), ModelShape((3,), num_classes=2)
    save_model(tmp_path / "model", build_model(config, shape).state_dict(), config, shape, Standardisation())
    torch.manual_seed(3)
    expected = torch.rand(2)
    torch.manual_seed(3)
    load_model(tmp_path / "model")
    assert torch.equal(torch.rand(2), expected)


def test_other_files_are_refused_in_one_line(tmp_path: Path) -> None:
    save_file({"w": torch.zeros(1)}, tmp_path / "other")
    (tmp_path / "text").write_text("no tensors")
    for name, told in (
        ("other", "not a model of this project"),
        ("text", "not a readable"),
        ("none", "no such"),
    ):
        with pytest.raises(MNError, match=told):
            load_model(tmp_path / name)
