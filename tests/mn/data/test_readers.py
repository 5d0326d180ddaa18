"""Every format, through ``--from`` to HDF5, from each form a user may have it in."""

from __future__ import annotations

import io
import json
import pickle
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest
from PIL import Image

from mn.data.catalog import Entry
from mn.data.hdf5 import describe
from mn.data.keep import Keep
from mn.data.obtain import take
from mn.data.prepare import prepare
from mn.errors import MNError
from tests.mn.data import make

FORMS = ("folder", "tar", "tar.gz", "tar.xz", "zip")


def through(entry: Entry, source: Path, where: Path) -> Path:
    keep = Keep(where / "keep")
    obtained = take(entry, source, keep, tell=lambda _: None)
    keep.lay_out(obtained.files, where / "raw")
    prepare(entry, where / "raw", where / "set.h5")
    return where / "set.h5"


SETS = {
    "mnist": (make.mnist, (140, 1, 32, 32), {"main": (110, 10, 20)}),
    "svhn": (make.svhn, (140, 3, 32, 32), {"main": (108, 12, 20)}),
    "cifar10": (lambda: make.cifar("binary"), (220, 3, 32, 32), {"main": (180, 20, 20)}),
    "cifar100": (lambda: make.cifar("python", hundred=True), (120, 3, 32, 32), {"main": (90, 10, 20)}),
    "cinic10": (make.cinic, (60, 3, 32, 32), {"main": (20, 20, 20)}),
    "tiny_imagenet": (make.tiny_imagenet, (24, 3, 32, 32), {"main": (18, 2, 4)}),
    "mnist_m": (make.mnist_m, (130, 3, 32, 32), {"main": (110, 10, 10)}),
    "imagenet": (make.imagenet, (104, 3, 64, 64), {"main": (98, 2, 4)}),
}


@pytest.mark.parametrize("kind", FORMS)
@pytest.mark.parametrize("name", SETS)
def test_each_set_from_each_form(name: str, kind: str, tmp_path: Path) -> None:
    build, shape, splits = SETS[name]
    found = describe(through(make.entry(name), make.form(build(), kind, tmp_path), tmp_path))
    assert found["shape"] == shape
    assert {split: tuple(parts.values()) for split, parts in found["splits"].items()} == splits


def test_the_form_changes_nothing_but_the_provenance(tmp_path: Path) -> None:
    arrays = []
    for kind in FORMS:
        where = tmp_path / kind
        where.mkdir()
        with h5py.File(
            through(make.entry("tiny_imagenet"), make.form(make.tiny_imagenet(), kind, where), where)
        ) as file:
            arrays.append((file["x"][:], file["y"][:], file["splits/main/train"][:]))
    for other in arrays[1:]:
        assert all(np.array_equal(a, b) for a, b in zip(arrays[0], other, strict=True))


def test_mnist_pixels_and_labels_are_where_they_belong(tmp_path: Path) -> None:
    images = np.arange(20 * 28 * 28, dtype=np.uint32).reshape(20, 28, 28).astype(np.uint8)
    labels = (np.arange(20) % 10).astype(np.uint8)
    files = {
        f"{word}-{what}": make.idx(array)
        for word in ("train", "t10k")
        for what, array in (("images-idx3-ubyte", images), ("labels-idx1-ubyte", labels))
    }
    entry = make.entry("mnist")
    assert entry.split is not None
    entry = entry.model_copy(update={"split": entry.split.model_copy(update={"validation": 0.5})})
    with h5py.File(through(entry, make.folder(files, tmp_path / "set"), tmp_path)) as file:
        wanted = Image.fromarray(images[7]).resize((32, 32), Image.Resampling.BILINEAR)
        assert np.array_equal(file["x"][27, 0], np.asarray(wanted))
        assert file["y"][:].tolist() == [*labels, *labels]
        assert "Pillow" in json.loads(file.attrs["provenance"])["resize"]


def test_svhn_ten_means_zero(tmp_path: Path) -> None:
    with h5py.File(through(make.entry("svhn"), make.folder(make.svhn(), tmp_path / "set"), tmp_path)) as file:
        assert file["y"][:12].tolist() == [1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 1, 2]


@pytest.mark.parametrize("form", ["binary", "python"])
def test_cifar100_has_fine_and_coarse_labels_in_both_forms(form: str, tmp_path: Path) -> None:
    source = make.form(make.cifar(form, hundred=True), "tar.gz", tmp_path)
    with h5py.File(through(make.entry("cifar100"), source, tmp_path)) as file:
        x, fine, coarse = make.cifar_arrays(100, 0)
        assert np.array_equal(file["x"][:100].reshape(100, -1), x)
        assert np.array_equal(file["y"][:100], fine)
        assert np.array_equal(file["y_coarse"][:100], coarse)
        assert len(json.loads(file.attrs["coarse_classes"])) == 20


def test_cifar10_python_equals_binary(tmp_path: Path) -> None:
    arrays = []
    for form in ("binary", "python"):
        where = tmp_path / form
        where.mkdir()
        with h5py.File(
            through(make.entry("cifar10"), make.form(make.cifar(form), "tar", where), where)
        ) as file:
            arrays.append((file["x"][:], file["y"][:]))
    assert np.array_equal(arrays[0][0], arrays[1][0])
    assert np.array_equal(arrays[0][1], arrays[1][1])


def test_pacs_has_domains_and_two_protocols(tmp_path: Path) -> None:
    entry = make.entry("pacs")
    assert entry.heldout is not None
    entry = entry.model_copy(
        update={
            "split": entry.split.model_copy(update={"validation": 0.25}),
            "heldout": entry.heldout.model_copy(update={"validation": 0.25, "test": 0.25}),
        }
    )
    with h5py.File(through(entry, make.form(make.pacs(), "zip", tmp_path), tmp_path)) as file:
        assert np.bincount(file["domain"][:]).tolist() == [28] * 4
        paper, heldout = file["splits/main"], file["splits/heldout"]
        assert len(paper["test"]) == 112
        assert len(paper["train"]) == 84
        assert not set(heldout["test"][:]) & (set(heldout["train"][:]) | set(heldout["validation"][:]))
        # class and domain in proportion: one of each pair of them
        pairs = file["y"][:][heldout["test"][:]] + 7 * file["domain"][:][heldout["test"][:]]
        assert sorted(pairs) == list(range(28))


def test_tiny_imagenet_names_its_classes_and_passes_over_unlabelled_images(tmp_path: Path) -> None:
    path = through(make.entry("tiny_imagenet"), make.form(make.tiny_imagenet(), "tar", tmp_path), tmp_path)
    assert describe(path)["classes"] == ["dog", "cat"]
    with h5py.File(path) as file:
        assert file["y"][:].tolist() == [1] * 10 + [0] * 10 + [0, 0, 1, 1]


def test_imagenet_answers_come_from_the_devkit(tmp_path: Path) -> None:
    path = through(make.entry("imagenet"), make.folder(make.imagenet(), tmp_path / "set"), tmp_path)
    assert describe(path)["classes"] == ["tench", "shark"]
    with h5py.File(path) as file:
        assert file["y"][100:].tolist() == [0, 1, 1, 0]


def test_imagenet_as_folders(tmp_path: Path) -> None:
    files = {
        f"{part}/n0000000{i}/{j}.JPEG": make.picture(j, (20, 30), "JPEG")
        for part in ("train", "val")
        for i in (1, 2)
        for j in range(50)
    }
    found = describe(through(make.entry("imagenet"), make.form(files, "tar", tmp_path), tmp_path))
    assert found["shape"] == (200, 3, 64, 64)
    assert found["splits"]["main"]["test"] == 100


def test_only_chosen_rows_are_decoded(tmp_path: Path) -> None:
    keep = Keep(tmp_path / "keep")
    entry = make.entry("tiny_imagenet")
    keep.lay_out(
        take(entry, make.form(make.tiny_imagenet(), "zip", tmp_path), keep, tell=lambda _: None).files,
        tmp_path / "raw",
    )
    prepare(entry, tmp_path / "raw", tmp_path / "all.h5")
    prepare(entry, tmp_path / "raw", tmp_path / "some.h5", rows=20)
    with h5py.File(tmp_path / "all.h5") as everything, h5py.File(tmp_path / "some.h5") as some:
        rows = np.sort(np.random.default_rng(0).choice(24, 20, replace=False))
        assert np.array_equal(some["x"][:], everything["x"][:][rows])
        assert np.array_equal(some["y"][:], everything["y"][:][rows])


def _without(files: make.Files, part: str) -> make.Files:
    return {name: data for name, data in files.items() if part not in name}


def _with(files: make.Files, **changes: bytes) -> make.Files:
    return {
        name: changes.get(name.rpartition("/")[2].split(".")[0].replace("-", "_"), data)
        for name, data in files.items()
    }


BROKEN = {
    "idx without labels": ("mnist", lambda: _without(make.mnist(), "t10k-labels"), "no file t10k-labels"),
    "idx of floats": (
        "mnist",
        lambda: _with(make.mnist(), train_images_idx3_ubyte=b"\0\0\x0d\x03" + bytes(12)),
        "not an IDX",
    ),
    "idx cut": (
        "mnist",
        lambda: _with(make.mnist(), train_images_idx3_ubyte=make.idx(np.zeros((120, 28, 28), np.uint8))[:-9]),
        "its header says",
    ),
    "idx header cut": (
        "mnist",
        lambda: _with(make.mnist(), train_images_idx3_ubyte=b"\0\0\x08\x03\0\0"),
        "cut short",
    ),
    "idx counts differ": (
        "mnist",
        lambda: _with(make.mnist(), train_labels_idx1_ubyte=make.idx(np.zeros(119, np.uint8))),
        "119 labels",
    ),
    "idx label 200": (
        "mnist",
        lambda: _with(make.mnist(), train_labels_idx1_ubyte=make.idx(np.full(120, 200, np.uint8))),
        "labels 0 to 200",
    ),
    "mat is text": ("svhn", lambda: {**make.svhn(), "train_32x32.mat": b"x" * 400}, "not SVHN"),
    "mat missing": ("svhn", lambda: _without(make.svhn(), "test_"), "no file test_32x32.mat"),
    "mat cut": (
        "svhn",
        lambda: {**make.svhn(), "train_32x32.mat": make.svhn()["train_32x32.mat"][:5000]},
        "not SVHN",
    ),
    "cifar cut": ("cifar10", lambda: _with(make.cifar("binary"), test_batch=b"\1" * 4000), "no whole number"),
    "cifar without test": ("cifar10", lambda: _without(make.cifar("binary"), "test_batch"), "no test batch"),
    "cifar wrong pickle": (
        "cifar10",
        lambda: _with(make.cifar("python"), data_batch_1=pickle.dumps([1, 2], 2)),
        "not a CIFAR batch",
    ),
    "cifar cut pickle": (
        "cifar10",
        lambda: _with(make.cifar("python"), data_batch_1=pickle.dumps({"data": 1}, 2)[:9]),
        "pickle",
    ),
    "pacs class unknown": (
        "pacs",
        lambda: {**make.pacs(1), "PACS/photo/cat/1.jpg": make.picture(0)},
        "'cat' is no class",
    ),
    "pacs domain unknown": (
        "pacs",
        lambda: {**make.pacs(1), "PACS/quilt/dog/1.jpg": make.picture(0)},
        "no domain",
    ),
    "cinic without valid": ("cinic10", lambda: _without(make.cinic(), "valid/"), "no folder valid"),
    "tiny without annotations": (
        "tiny_imagenet",
        lambda: _without(make.tiny_imagenet(), "annotations"),
        "val_annotations",
    ),
    "tiny unlisted image": (
        "tiny_imagenet",
        lambda: {**make.tiny_imagenet(), "t/val/images/x.JPEG": make.picture(0)},
        "not in val_ann",
    ),
    "mnist_m image missing": (
        "mnist_m",
        lambda: _without(make.mnist_m(), "test/00000003"),
        "listed, but not there",
    ),
    "mnist_m image unlisted": (
        "mnist_m",
        lambda: {**make.mnist_m(), "mnist_m/mnist_m_test/9.png": b"x"},
        "not listed",
    ),
    "mnist_m bad list": (
        "mnist_m",
        lambda: _with(make.mnist_m(), mnist_m_test_labels=b"a.png four\n"),
        "line 1",
    ),
    "imagenet without devkit": (
        "imagenet",
        lambda: _without(make.imagenet(), "devkit"),
        "add ILSVRC2012_devkit",
    ),
    "imagenet without training": (
        "imagenet",
        lambda: _without(make.imagenet(), "img_train"),
        "no training images",
    ),
    "nothing of the kind": ("pacs", lambda: {"readme.txt": b"hello"}, "no rows were found"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_what_is_not_the_set_is_refused_and_nothing_is_remembered(case: str, tmp_path: Path) -> None:
    name, build, message = BROKEN[case]
    keep = Keep(tmp_path / "keep")
    with pytest.raises(MNError, match=message) as caught:
        take(make.entry(name), make.form(build(), "tar", tmp_path), keep, tell=lambda _: None)
    assert "\n" not in str(caught.value)
    assert keep.recall(name) is None


def _bomb() -> bytes:
    out = io.BytesIO()
    Image.new("L", (10_000, 8_001)).save(out, "PNG")
    return out.getvalue()


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: b"not an image", "not a readable image"),
        (lambda: make.picture(0)[:200], "not a readable image"),
        (_bomb, "too many pixels"),
    ],
    ids=["text", "cut", "bomb"],
)
def test_an_unreadable_image_is_named_and_no_file_is_left(
    build: Callable[[], bytes], message: str, tmp_path: Path
) -> None:
    files = {**make.tiny_imagenet(), "t/train/n00000001/images/bad.png": build()}
    with pytest.raises(MNError, match=rf"images/bad.png: .*{message}"):
        through(make.entry("tiny_imagenet"), make.form(files, "tar", tmp_path), tmp_path)
    assert not list(tmp_path.glob("*.h5*"))
    assert not list(tmp_path.glob(".set*"))


@pytest.mark.parametrize("mode", ["L", "P", "RGBA", "CMYK"])
def test_every_mode_becomes_rgb(mode: str) -> None:
    from mn.data.images import decode

    assert decode(make.picture(1, kind="JPEG" if mode == "CMYK" else "PNG", mode=mode), "x", 32).shape == (
        3,
        32,
        32,
    )


def test_downsizing_is_antialiased() -> None:
    from mn.data.images import decode

    stripes = np.zeros((64, 64, 3), np.uint8)
    stripes[:, ::2] = 255
    out = io.BytesIO()
    Image.fromarray(stripes).save(out, "PNG")
    assert np.abs(decode(out.getvalue(), "x", 16)[:, 2:-2, 2:-2].astype(int) - 127).max() <= 2
