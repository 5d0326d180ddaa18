"""A user's own table under real DVC: given once, then only named."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from mn.data.hdf5 import describe
from pipeline.download import download
from pipeline.own import TableOptions
from tests.tiny.project import make_clone


def test_a_table_given_once_is_found_by_an_experiment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MN_STORE", raising=False)
    clone = make_clone(tmp_path / "project")
    table = tmp_path / "my.csv"
    values = np.random.default_rng(0).normal(size=(60, 3)).round(3)
    table.write_text("a,b,price\n" + "\n".join(",".join(map(str, row)) for row in values), encoding="utf-8")
    download(clone.root, "mytable", local=table, options=TableOptions(targets=["price"]))
    table.unlink()
    clone.run("dvc", "exp", "run", "-S", "datasets=[mytable]", "preprocess@mytable")
    assert describe(clone.root / "data/processed/mytable.h5")["shape"] == (60, 2)
    # Should data/raw be gone, the stage takes it from what is kept.
    shutil.rmtree(clone.root / "data/raw")
    clone.run("dvc", "repro", "preprocess@mytable")
    assert (clone.root / "data/raw/mytable/my.csv").exists()
