"""ImageNet (ILSVRC 2012): the three archives behind its login, or folders ``train/`` and ``val/`` of them."""

from __future__ import annotations

import io
import re
from pathlib import PurePosixPath

import numpy as np

from mn.data.archive import Collection
from mn.data.catalog import Entry
from mn.data.images import MemberImages
from mn.data.readers.content import TEST, TRAIN, Content
from mn.errors import MNError

_WNID = re.compile(r"n\d{8}")
_VALIDATION = re.compile(r"ILSVRC2012_val_(\d{8})\.JPEG")
_TRUTH = "ILSVRC2012_validation_ground_truth.txt"
_NEEDED = {
    TRAIN: "training images (train/<wnid>/, or ILSVRC2012_img_train.tar)",
    TEST: "validation images (val/, or ILSVRC2012_img_val.tar)",
}


def read_imagenet(entry: Entry, collection: Collection) -> Content:
    """The official validation images are the test part, as the test images' labels are secret.

    A validation image takes its class from its folder, or from the devkit's list of answers.
    """
    names: list[str] = []
    wnids: list[str | None] = []
    tests: list[bool] = []
    truth, meta = b"", b""
    shared: dict[str, str] = {}  # one string a class, not one an image
    for member in collection:
        path = PurePosixPath(member.name)
        if path.name == _TRUTH:
            truth = member.read()
        elif path.name == "meta.mat":
            meta = member.read()
        elif path.suffix.lower() in (".jpeg", ".jpg", ".png"):
            wnid = _class_of(path)
            names.append(member.name)
            wnids.append(shared.setdefault(wnid, wnid) if wnid else None)
            tests.append("val" in path.parts or bool(_VALIDATION.fullmatch(path.name)))
    ids, words = _synsets(meta) if meta else ({}, {})
    _answer(entry, names, wnids, truth, ids)
    found = sorted({wnid for wnid in wnids if wnid})
    number = {wnid: i for i, wnid in enumerate(found)}
    y = np.array([number[wnid or ""] for wnid in wnids], dtype=np.int64)
    part = np.where(np.array(tests, dtype=bool), TEST, TRAIN).astype(np.int64)
    for value, word in _NEEDED.items():
        if value not in part:
            raise MNError(f"{entry.name}: no {word} among its files")
    order = np.lexsort((np.array(names), part))
    return Content(
        x=MemberImages(collection, [names[i] for i in order], entry.image_size),
        y=y[order],
        part=part[order],
        classes=[words.get(wnid, wnid) for wnid in found],
        attributes={"wnids": found},
    )


def _class_of(path: PurePosixPath) -> str | None:
    """The class in a path: its folder's name, or the start of its own."""
    if _WNID.fullmatch(path.parent.name):
        return path.parent.name
    match = _WNID.match(path.name)
    return match[0] if match else None


def _answer(
    entry: Entry, names: list[str], wnids: list[str | None], truth: bytes, ids: dict[int, str]
) -> None:
    """Give the validation images of the flat archive their classes, in place."""
    answers = truth.split()
    for i, wnid in enumerate(wnids):
        if wnid is not None:
            continue
        match = _VALIDATION.fullmatch(PurePosixPath(names[i]).name)
        if not match:
            raise MNError(
                f"{entry.name}: {names[i]} lies in no folder of a class (n followed by eight digits)"
            )
        if not answers or not ids:
            raise MNError(
                f"{entry.name}: {names[i]} has no folder of a class, and the list of answers is not there; "
                "add ILSVRC2012_devkit_t12.tar.gz"
            )
        try:
            wnids[i] = ids[int(answers[int(match[1]) - 1])]
        except (IndexError, KeyError, ValueError):
            raise MNError(f"{entry.name}: {_TRUTH} has no valid answer for {names[i]}") from None


def _synsets(data: bytes) -> tuple[dict[int, str], dict[str, str]]:
    """From the devkit's ``meta.mat``: number to wnid, wnid to name, of the 1,000 classes (no children)."""
    from scipy.io import loadmat
    from scipy.io.matlab import MatReadError

    try:
        synsets = loadmat(io.BytesIO(data), squeeze_me=True)["synsets"]
        leaves = [row for row in np.atleast_1d(synsets) if int(row["num_children"]) == 0]
        ids = {int(row["ILSVRC2012_ID"]): str(row["WNID"]) for row in leaves}
        words = {str(row["WNID"]): str(row["words"]).split(",")[0] for row in leaves}
    except (MatReadError, KeyError, ValueError, TypeError, IndexError, OSError) as error:
        raise MNError(f"meta.mat: not the devkit's list of classes ({error}); get it again") from None
    return ids, words
