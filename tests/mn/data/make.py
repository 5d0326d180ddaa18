"""Tiny copies of every format, made from nothing."""

from __future__ import annotations

import gzip
import io
import pickle
import struct
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import scipy.io
from PIL import Image

from mn.data.catalog import Entry, read_catalog

CATALOG = Path(__file__).parents[3] / "data" / "catalog.yaml"
Files = dict[str, bytes]


def entry(name: str, **changes: object) -> Entry:
    return read_catalog(CATALOG)[name].model_copy(update=changes)


def picture(seed: int, size: tuple[int, int] = (40, 36), kind: str = "PNG", mode: str = "RGB") -> bytes:
    rng = np.random.default_rng(seed)
    channels = {"RGB": 3, "L": 1, "RGBA": 4, "P": 1, "CMYK": 4}[mode]
    pixels = rng.integers(0, 256, (size[1], size[0], channels), dtype=np.uint8)
    image = Image.fromarray(pixels.squeeze() if channels == 1 else pixels, "L" if mode == "P" else mode)
    if mode == "P":
        image = image.convert("P")
    out = io.BytesIO()
    image.save(out, kind)
    return out.getvalue()


def idx(array: np.ndarray) -> bytes:
    return bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


def mnist(train: int = 120, test: int = 20) -> Files:
    rng = np.random.default_rng(0)
    files = {}
    for word, count in (("train", train), ("t10k", test)):
        images = rng.integers(0, 256, (count, 28, 28), dtype=np.uint8)
        labels = (np.arange(count) % 10).astype(np.uint8)
        files[f"{word}-images-idx3-ubyte.gz"] = gzip.compress(idx(images))
        files[f"{word}-labels-idx1-ubyte.gz"] = gzip.compress(idx(labels))
    return files


def svhn(train: int = 120, test: int = 20) -> Files:
    rng = np.random.default_rng(0)
    files = {}
    for word, count in (("train", train), ("test", test)):
        out = io.BytesIO()
        pixels = rng.integers(0, 256, (32, 32, 3, count), dtype=np.uint8)
        scipy.io.savemat(out, {"X": pixels, "y": (np.arange(count) % 10 + 1).astype(np.uint8)[:, None]})
        files[f"{word}_32x32.mat"] = out.getvalue()
    return files


def cifar_arrays(count: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    fine = np.arange(count) % 10
    return rng.integers(0, 256, (count, 3072), dtype=np.uint8), fine, fine // 5


def cifar(form: str, hundred: bool = False) -> Files:
    names = ["train", "test"] if hundred else ["data_batch_1", "data_batch_2", "test_batch"]
    folder = {"binary": "cifar-x-binary", "python": "cifar-x-python"}[form]
    files = {}
    for seed, name in enumerate(names):
        x, fine, coarse = cifar_arrays(20 if name.startswith("test") else 100, seed)
        if form == "binary":
            labels = np.stack([coarse, fine], 1) if hundred else fine[:, None]
            files[f"{folder}/{name}.bin"] = np.hstack([labels.astype(np.uint8), x]).tobytes()
        else:
            labels = (
                {"fine_labels": fine.tolist(), "coarse_labels": coarse.tolist()}
                if hundred
                else {"labels": fine.tolist()}
            )
            batch = {b"data": x, **{key.encode(): value for key, value in labels.items()}}
            files[f"{folder}/{name}"] = pickle.dumps(batch, protocol=2)
    files[f"{folder}/readme.html"] = b"<html>"
    return files


def pacs(count: int = 4) -> Files:
    data = entry("pacs")
    return {
        f"PACS/{domain}/{name}/pic_{i:03}.jpg": picture(i, kind="JPEG")
        for domain in data.domains
        for name in data.classes
        for i in range(count)
    }


def cinic(count: int = 2) -> Files:
    return {
        f"{part}/{name}/{part}-{name}-{i}.png": picture(i, (32, 32))
        for part in ("train", "valid", "test")
        for name in entry("cinic10").classes
        for i in range(count)
    }


def tiny_imagenet() -> Files:
    root, wnids = "tiny-imagenet-200", ["n00000002", "n00000001"]
    files: Files = {
        f"{root}/wnids.txt": "\n".join(wnids).encode(),
        f"{root}/words.txt": b"n00000002\tdog, hound\nn00000001\tcat\n",
    }
    lines = []
    for label, wnid in enumerate(wnids):
        for i in range(10):
            files[f"{root}/train/{wnid}/images/{wnid}_{i}.JPEG"] = picture(i, (64, 64), "JPEG")
        for i in range(2):
            name = f"val_{2 * label + i}.JPEG"
            files[f"{root}/val/images/{name}"] = picture(50 + i, (64, 64), "JPEG", "L" if i else "RGB")
            lines.append(f"{name}\t{wnid}\t0\t0\t62\t62\n")
    files[f"{root}/val/val_annotations.txt"] = "".join(lines).encode()
    files[f"{root}/test/images/test_0.JPEG"] = picture(99, (64, 64), "JPEG")
    return files


def mnist_m(train: int = 120, test: int = 10) -> Files:
    files: Files = {}
    for word, count in (("train", train), ("test", test)):
        lines = [f"{i:08}.png {i % 10}\n" for i in range(count)]
        files[f"mnist_m/mnist_m_{word}_labels.txt"] = "".join(lines).encode()
        for i in range(count):
            files[f"mnist_m/mnist_m_{word}/{i:08}.png"] = picture(i, (32, 32))
    return files


def imagenet() -> Files:
    """The three archives as published: class archives in the training one, flat validation images."""
    wnids = ["n00000001", "n00000002"]
    classes = {
        f"{wnid}.tar": tar({f"{wnid}_{i}.JPEG": picture(i, (90, 70), "JPEG") for i in range(50)})
        for wnid in wnids
    }
    names = [f"ILSVRC2012_val_{i:08}.JPEG" for i in range(1, 5)]
    val = {name: picture(i, (50, 80), "JPEG", "CMYK" if i == 2 else "RGB") for i, name in enumerate(names)}
    fields = [("ILSVRC2012_ID", "O"), ("WNID", "O"), ("words", "O"), ("gloss", "O"), ("num_children", "O")]
    synsets = np.array(
        [(2, wnids[0], "tench, fish", "", 0), (1, wnids[1], "shark", "", 0), (3, "n9", "animal", "", 2)],
        dtype=fields,
    )
    meta = io.BytesIO()
    scipy.io.savemat(meta, {"synsets": synsets})
    devkit = {
        "ILSVRC2012_devkit_t12/data/meta.mat": meta.getvalue(),
        "ILSVRC2012_devkit_t12/data/ILSVRC2012_validation_ground_truth.txt": b"2\n1\n1\n2\n",
    }
    return {
        "ILSVRC2012_img_train.tar": tar(classes),
        "ILSVRC2012_img_val.tar": tar(val),
        "ILSVRC2012_devkit_t12.tar.gz": gzip.compress(tar(devkit)),
    }


def tar(files: Files, compression: str = "") -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode=f"w:{compression}") as archive:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return out.getvalue()


def zipped(files: Files) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return out.getvalue()


def folder(files: Files, where: Path) -> Path:
    for name, data in files.items():
        path = where / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return where


def form(files: Files, kind: str, where: Path) -> Path:
    """The same files as a folder or as any of the archives that ``--from`` takes."""
    if kind == "folder":
        return folder(files, where / "set")
    data = zipped(files) if kind == "zip" else tar(files, kind.removeprefix("tar").removeprefix("."))
    path = where / f"set.{kind}"
    path.write_bytes(data)
    return path
