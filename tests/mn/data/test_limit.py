"""Inputs far from the mean: how far they may lie, and what becomes of a column that says nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch

from mn.data.hdf5 import PARTS
from mn.data.prepare import prepare
from mn.data.split import SplitData, load_split
from pipeline.paths import processed_file
from pipeline.preprocess import preprocess
from tests.conftest import set_params
from tests.mn.data import make

ROWS = 60
ORDINARY, NEARLY, CONSTANT = range(3)  # columns


def prepared(tmp_path: Path, limit: float | None, outlier: int = 0) -> Path:
    """A table whose second column is nearly 5, but 1000 in one row, and whose third is 0.1 throughout."""
    rng = np.random.default_rng(0)
    x = np.stack([rng.normal(size=ROWS), 5 + 1e-3 * rng.normal(size=ROWS), np.full(ROWS, 0.1)], axis=1)
    x[outlier, NEARLY] = 1000.0
    raw = tmp_path / f"raw{outlier}"
    raw.mkdir(exist_ok=True)
    np.savez(raw / "diabetes.npz", x=x, y=rng.normal(size=ROWS))
    target = tmp_path / f"{outlier}-{limit}.h5"
    prepare(make.entry("diabetes"), raw, target, limit=limit)
    return target


def inputs(data: SplitData) -> dict[str, torch.Tensor]:
    return {part: getattr(data, part).x for part in PARTS}


@pytest.mark.parametrize("part", PARTS)
def test_inputs_lie_within_the_limit_wherever_the_outlier_is(tmp_path: Path, part: str) -> None:
    with h5py.File(prepared(tmp_path, None)) as file:  # where the outlier is does not change the split
        row = int(file[f"splits/fold0/{part}"][0])
    free, limited = (inputs(load_split(prepared(tmp_path, limit, row), "fold0")) for limit in (None, 2.0))
    assert free[part][:, NEARLY].max() > 5, "or there is nothing to limit"
    assert {name: x.abs().max().item() <= 2.0 for name, x in limited.items()} == dict.fromkeys(PARTS, True)
    assert limited[part][:, NEARLY].max() == 2.0


def test_what_lies_within_the_limit_stays_as_it_is(tmp_path: Path) -> None:
    free, limited = (inputs(load_split(prepared(tmp_path, limit), "fold0")) for limit in (None, 2.0))
    for part in PARTS:
        assert torch.equal(limited[part], free[part].clamp(-2, 2))


def test_statistics_are_those_without_a_limit(tmp_path: Path) -> None:
    with h5py.File(prepared(tmp_path, None)) as free, h5py.File(prepared(tmp_path, 2.0)) as limited:
        for name in ("x_mean", "x_std"):
            assert np.array_equal(free[f"splits/fold0/{name}"], limited[f"splits/fold0/{name}"])
        assert np.array_equal(free["x"], limited["x"]), "the file holds the inputs in their own unit"


@pytest.mark.parametrize("limit", [None, 2.0])
def test_a_constant_column_becomes_zero(tmp_path: Path, limit: float | None) -> None:
    for part, x in inputs(load_split(prepared(tmp_path, limit), "fold0")).items():
        assert x.isfinite().all(), part
        assert x[:, CONSTANT].abs().max() < 1e-6, part


def test_params_set_the_limit(prepared: Callable[[str], Path]) -> None:
    root = prepared("diabetes")
    path = root / processed_file("diabetes")
    free = inputs(load_split(path, "fold0"))  # the recipe has none
    set_params(root, data={"limit": 1.5})
    preprocess(root, "diabetes")
    limited = inputs(load_split(path, "fold0"))
    assert {part: x.abs().max().item() for part, x in limited.items()} == dict.fromkeys(PARTS, 1.5)
    set_params(root, data={"limit": "none"})
    preprocess(root, "diabetes")
    none = inputs(load_split(path, "fold0"))
    assert all(torch.equal(none[part], free[part]) for part in PARTS)
