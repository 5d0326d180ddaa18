"""The real files, whole, where they are at hand: ``../shared/data`` beside the repository."""

from __future__ import annotations

import time
from pathlib import Path

import h5py
import numpy as np
import pytest

from mn.data.catalog import Columns, Entry, SplitRule
from mn.data.hdf5 import describe
from mn.data.manifest import read_manifest
from tests.mn.data import make
from tests.mn.data.test_readers import through

REAL = make.CATALOG.parents[2] / "shared" / "data"
pytestmark = pytest.mark.skipif(not REAL.is_dir(), reason="the real data (../shared/data) is not here")


@pytest.mark.parametrize(
    ("name", "file", "shape", "splits"),
    [
        ("mnist", "mnist", (70000, 1, 32, 32), {"main": (55000, 5000, 10000)}),
        ("cifar10", "cifar-10-binary-30k.tar.xz", (40000, 3, 32, 32), {"main": (27000, 3000, 10000)}),
        ("cifar100", "cifar-100-subset-binary.tar.xz", (7200, 3, 32, 32), {"main": (5400, 600, 1200)}),
        (
            "pacs",
            "pacs_64px.tar",
            (9991, 3, 32, 32),
            {"main": (8977, 1014, 9991), "heldout": (7991, 1000, 1000)},
        ),
        ("mnist_m", "mnist_m_subset.tar", (5000, 3, 32, 32), {"main": (3667, 333, 1000)}),
        ("tiny_imagenet", "tiny_imagenet_10_classes.tar", (2500, 3, 32, 32), {"main": (1800, 200, 500)}),
        ("gom", "gom", (1059, 116), None),
    ],
)
def test_whole_set(name: str, file: str, shape: tuple[int, ...], splits: object, tmp_path: Path) -> None:
    started = time.perf_counter()
    path = through(make.entry(name), REAL / file, tmp_path)
    seconds = time.perf_counter() - started
    found = describe(path)
    assert found["shape"] == shape
    if splits:
        assert {split: tuple(parts.values()) for split, parts in found["splits"].items()} == splits
    if name == "mnist":
        assert seconds < 20
        assert all(file.verified.startswith("MD5") for file in read_manifest(tmp_path / "raw", name))
        with h5py.File(path) as data:
            assert data["y"][:10].tolist() == [5, 0, 4, 1, 9, 2, 1, 3, 1, 4]
    if name == "cifar100":
        with h5py.File(path) as data:
            coarse = {int(fine): set() for fine in range(100)}
            for fine, number in zip(data["y"][:], data["y_coarse"][:], strict=True):
                coarse[int(fine)].add(int(number))
        assert all(len(numbers) == 1 for numbers in coarse.values())
        assert np.bincount([min(numbers) for numbers in coarse.values()]).tolist() == [5] * 20


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("protein", (45730, 9)),
        ("kin40k", (40000, 8)),
        ("keggundirected", (63608, 27)),
        ("bike", (17379, 17)),
        ("elevators", (16599, 18)),
        ("pol", (15000, 26)),
        ("parkinsons", (5875, 20)),
    ],
)
def test_whole_table(name: str, shape: tuple[int, ...], tmp_path: Path) -> None:
    entry = Entry(
        name=name,
        title=name,
        task="regression",
        kind="table",
        source="files",
        citation="",
        licence="",
        format="table",
        targets=["y"],
        columns=Columns(targets=[-1]),
        split=SplitRule(seed=0, folds=5, validation=0.1),
    )
    found = describe(through(entry, REAL / "uci" / f"{name}.csv.gz", tmp_path))
    assert found["shape"] == shape
    assert sum(fold["test"] for fold in found["splits"].values()) == shape[0]
