"""Stage 1 as a user meets it: sources, local copies, and their own data."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterator
from pathlib import Path

import h5py
import numpy as np
import pytest
from typer.testing import CliRunner

from mn.data.catalog import read_catalog
from mn.data.hdf5 import describe
from mn.data.manifest import read_manifest
from mn.errors import MNError
from pipeline.cli import app
from pipeline.download import download
from pipeline.own import TableOptions
from pipeline.params import plan
from pipeline.preprocess import preprocess
from tests.mn.data import make
from tests.mn.data.server import Server, running

ROOT = make.CATALOG.parents[1]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("MN_STORE", raising=False)
    root = tmp_path / "project"
    (root / "data").mkdir(parents=True)
    for name in ("params.yaml", "recipes.yaml", "data/catalog.yaml"):
        shutil.copy(ROOT / name, root / name)
    return root


@pytest.fixture
def server() -> Iterator[Server]:
    with running() as server:
        yield server


def _point_at(project: Path, old: str, new: str) -> None:
    path = project / "data/catalog.yaml"
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new), encoding="utf-8")


def _table(rows: int = 60) -> str:
    rng = np.random.default_rng(0)
    lines = ["size,city,price"]
    for size, city, noise in zip(
        rng.normal(size=rows), rng.integers(0, 3, rows), rng.normal(size=rows), strict=True
    ):
        lines.append(f"{size:.4f},{['Oslo', 'Rome', 'Lima'][city]},{2 * size + city + noise / 10:.4f}")
    return "\n".join(lines) + "\n"


def test_embedded_sets_come_without_a_network(project: Path) -> None:
    for name in ("spiral", "digits", "diabetes"):
        assert (download(project, name) / "").exists()
        assert describe(preprocess(project, name))["name"] == name
    with pytest.raises(MNError, match="comes with the software"):
        download(project, "digits", local=project)


def test_from_the_source_and_then_from_what_is_kept(project: Path, server: Server) -> None:
    values = np.random.default_rng(0).normal(size=(60, 118))
    text = "\n".join(",".join(map(str, row)) for row in values)
    data = make.zipped({"default_plus_chromatic_features_1059_tracks.txt": text.encode()})
    url = server.url("/gom.zip", data=data)
    _point_at(
        project, "https://archive.ics.uci.edu/static/public/315/geographical+original+of+music.zip", url
    )
    folder = download(project, "gom")
    (file,) = read_manifest(folder, "gom")
    assert (file.sha256, file.origin, file.verified) == (
        hashlib.sha256(data).hexdigest(),
        url,
        "its structure",
    )
    shutil.rmtree(folder)  # as DVC does before it runs the stage again
    download(project, "gom")
    assert len(server.paths["/gom.zip"].requests) == 1
    download(project, "gom", fresh=True)
    assert len(server.paths["/gom.zip"].requests) == 2
    assert describe(preprocess(project, "gom"))["shape"] == (60, 116)


def test_a_download_of_something_else_is_not_laid_out(project: Path, server: Server) -> None:
    bad = server.url("/x", data=make.zipped({"readme.txt": b"hello"}))
    _point_at(
        project, "https://archive.ics.uci.edu/static/public/315/geographical+original+of+music.zip", bad
    )
    with pytest.raises(MNError, match="no table"):
        download(project, "gom")
    assert not (project / "data/raw/gom").exists()


def test_a_local_copy_survives_the_next_run_of_the_stage(project: Path, tmp_path: Path) -> None:
    source = make.form(make.tiny_imagenet(), "tar.xz", tmp_path)
    folder = download(project, "tiny_imagenet", local=source)
    before = (folder / "SOURCE.json").read_text(encoding="utf-8")
    source.unlink()
    shutil.rmtree(folder)
    download(project, "tiny_imagenet")
    assert (folder / "SOURCE.json").read_text(encoding="utf-8") == before
    assert str(tmp_path) not in before
    preprocess(project, "tiny_imagenet")


def test_changing_the_original_does_not_change_what_is_kept(project: Path, tmp_path: Path) -> None:
    source = make.form(make.tiny_imagenet(), "tar", tmp_path)
    folder = download(project, "tiny_imagenet", local=source)
    with source.open("r+b") as file:
        file.write(b"changed")
    assert (folder / "set.tar").read_bytes() != source.read_bytes()


def test_imagenet_says_what_to_get_where_and_what_to_do(project: Path) -> None:
    with pytest.raises(MNError) as caught:
        download(project, "imagenet")
    for words in ("ILSVRC2012_img_train.tar", "image-net.org", "pipeline download imagenet --from FOLDER"):
        assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_users_table_just_works(project: Path, tmp_path: Path) -> None:
    source = tmp_path / "houses.csv"
    source.write_text(_table(), encoding="utf-8")
    download(project, "houses", local=source, options=TableOptions(targets=["price"]))
    source.unlink()
    entry = read_catalog(project / "data/catalog.yaml")["houses"]
    assert (entry.task, entry.targets, entry.rows, entry.own) == ("regression", ["price"], 60, True)
    shutil.rmtree(project / "data/raw/houses")
    download(project, "houses")
    path = preprocess(project, "houses")
    with h5py.File(path) as file:
        assert file["x"].shape == (60, 4)
        assert sorted(file["splits"]) == [f"fold{i}" for i in range(5)]
    assert {run.method for run in plan(project, "houses").runs} == {"knn", "vanilla", "mn", "hgb"}


def test_the_users_pictures_just_work(project: Path, tmp_path: Path) -> None:
    files = {
        f"{name}/{i}.jpg": make.picture(i, (50, 70), "JPEG") for name in ("cat", "dog") for i in range(20)
    }
    download(project, "pets", local=make.folder(files, tmp_path / "photos"))
    found = describe(preprocess(project, "pets"))
    assert (found["shape"], found["classes"]) == ((40, 3, 32, 32), ["cat", "dog"])
    assert found["splits"]["main"] == {"train": 26, "validation": 6, "test": 8}
    assert plan(project, "pets").runs[0].dataset == "pets"


def test_a_table_of_classes_without_a_header(project: Path, tmp_path: Path) -> None:
    rows = "".join(f"{i * 0.5},{i % 7},{'yes' if i % 2 else 'no'}\n" for i in range(60))
    source = tmp_path / "t.tsv.gz"
    import gzip

    source.write_bytes(gzip.compress(rows.replace(",", "\t").encode()))
    download(project, "answers", local=source, options=TableOptions(targets=["-1"]))
    found = describe(preprocess(project, "answers"))
    assert (found["task"], found["classes"], found["shape"]) == ("classification", ["no", "yes"], (60, 2))
    assert plan(project, "answers").runs


def test_giving_it_again_replaces_the_entry_and_keeps_the_recipe(project: Path, tmp_path: Path) -> None:
    source = tmp_path / "t.csv"
    source.write_text(_table(60), encoding="utf-8")
    shipped = (project / "data/catalog.yaml").read_text(encoding="utf-8")
    download(project, "houses", local=source, options=TableOptions(targets=["price"]))
    recipes = project / "recipes.yaml"
    recipes.write_text(recipes.read_text(encoding="utf-8") + "  seeds: [7]\n", encoding="utf-8")
    source.write_text(_table(80), encoding="utf-8")
    download(project, "houses", local=source, options=TableOptions(targets=["price"], drop=["city"]))
    catalog = (project / "data/catalog.yaml").read_text(encoding="utf-8")
    assert catalog.startswith(shipped.rstrip())
    assert catalog.count("\nhouses:") == 1
    assert read_catalog(project / "data/catalog.yaml")["houses"].rows == 80
    assert plan(project, "houses").runs[0].seed == 7
    assert describe(preprocess(project, "houses"))["shape"] == (80, 1)


@pytest.mark.parametrize(
    ("name", "text", "options", "message"),
    [
        ("houses", _table(), TableOptions(), "--target COLUMN"),
        ("houses", _table(), TableOptions(targets=["cost"]), "no column 'cost'; it has size, city, price"),
        ("houses", _table(), TableOptions(targets=["price"], categorical="refuse"), "column city holds 3"),
        ("Houses!", _table(), TableOptions(targets=["price"]), "a name is small letters"),
        ("houses", _table(3), TableOptions(targets=["price"]), "cannot be split"),
        ("houses", "a,b\n1,\n2,3\n", TableOptions(targets=["b"]), "missing values"),
        ("mnist", _table(), TableOptions(targets=["price"]), "for a table of your own"),
    ],
)
def test_what_cannot_be_used_is_told_and_nothing_is_written(
    project: Path, tmp_path: Path, name: str, text: str, options: TableOptions, message: str
) -> None:
    source = tmp_path / "t.csv"
    source.write_text(text, encoding="utf-8")
    with pytest.raises(MNError, match=message):
        download(project, name, local=source, options=options)
    for file in ("recipes.yaml", "data/catalog.yaml"):
        assert (project / file).read_bytes() == (ROOT / file).read_bytes()
    assert not (project / "data/raw").exists()


def test_unknown_sets_get_a_hint(project: Path) -> None:
    with pytest.raises(MNError, match="did you mean cifar10"):
        download(project, "cifar_10")
    with pytest.raises(MNError, match="no such file or folder"):
        download(project, "mnist", local=project / "nowhere")


def test_the_command(project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipeline.cli._ROOT", project)
    source = tmp_path / "t.csv"
    source.write_text(_table(), encoding="utf-8")
    arguments = ["download", "houses", "--from", str(source), "--target", "price", "--drop", "city"]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    assert "houses: 60 rows" in result.output
    assert read_catalog(project / "data/catalog.yaml")["houses"].columns.drop == ["city"]
