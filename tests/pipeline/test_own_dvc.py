"""A user's own table under real DVC: given once, then only named."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from mn.data.hdf5 import describe
from pipeline.download import download
from pipeline.own import TableOptions
from tests.mn.data import make

ROOT = make.CATALOG.parents[1]


def _run(root: Path, *command: str) -> str:
    binaries = Path(sys.executable).parent
    environment = {
        **os.environ,
        "PATH": f"{root / 'bin'}:{binaries}:{os.environ['PATH']}",
        "PYTHONPATH": str(root),
    }
    environment.pop("MN_STORE", None)
    result = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


@pytest.mark.skipif(not (Path(sys.executable).parent / "dvc").exists(), reason="dvc is not installed")
def test_a_table_given_once_is_found_by_an_experiment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MN_STORE", raising=False)
    root = tmp_path / "project"
    for name in ("mn", "pipeline", ".dvc"):
        shutil.copytree(
            ROOT / name, root / name, ignore=shutil.ignore_patterns("__pycache__", "tmp", "cache")
        )
    (root / "data").mkdir()
    for name in ("dvc.yaml", "params.yaml", "recipes.yaml", "data/catalog.yaml", ".dvcignore", ".gitignore"):
        shutil.copy(ROOT / name, root / name)
    (root / "bin").mkdir()
    # The installed command may be of another checkout: this one is of the copy.
    (root / "bin/pipeline").write_text(
        f"#!/bin/sh\nexec {sys.executable} -c 'from pipeline.cli import main; main()' \"$@\"\n",
        encoding="utf-8",
    )
    (root / "bin/pipeline").chmod(0o755)
    _run(root, "git", "init", "-q")
    _run(root, "git", "add", "-A")
    _run(root, "git", "-c", "user.name=t", "-c", "user.email=t@t", "commit", "-qm", "x")

    table = tmp_path / "my.csv"
    values = np.random.default_rng(0).normal(size=(60, 3)).round(3)
    table.write_text("a,b,price\n" + "\n".join(",".join(map(str, row)) for row in values), encoding="utf-8")
    download(root, "mytable", local=table, options=TableOptions(targets=["price"]))
    table.unlink()
    _run(root, "dvc", "exp", "run", "-S", "datasets=[mytable]", "preprocess@mytable")
    assert describe(root / "data/processed/mytable.h5")["shape"] == (60, 2)
    # A second run finds everything done; without data/raw the stage takes it from what is kept.
    assert "didn't change" in _run(root, "dvc", "repro", "preprocess@mytable")
    shutil.rmtree(root / "data/raw")
    _run(root, "dvc", "repro", "preprocess@mytable")
    assert (root / "data/raw/mytable/my.csv").exists()
