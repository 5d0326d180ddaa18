"""Formats that are folders of image files: one folder a class, with a domain or a part around it."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import PurePosixPath

import numpy as np

from mn.data.archive import Collection
from mn.data.catalog import Entry
from mn.data.images import MemberImages
from mn.data.readers.content import TEST, TRAIN, VALIDATION, Content
from mn.errors import MNError

_SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".gif", ".ppm", ".webp")
_TEXT_LIMIT = 50_000_000


def read_domains(entry: Entry, collection: Collection) -> Content:
    """PACS: ``…/<domain>/<class>/<image>``. ``extra`` has each row's domain."""
    names = sorted(name for name, _ in _members(collection))
    rows = [_ending(name, 3) for name in names]
    _refuse_unknown(entry, {row[1] for row in rows}, entry.classes, "class")
    domains = [row[0].replace(" ", "_").lower() for row in rows]
    _refuse_unknown(entry, set(domains), entry.domains, "domain")
    content = _content(entry, collection, names, [row[1] for row in rows], entry.classes)
    content.extra["domain"] = _numbers(domains, entry.domains)
    return content


def read_parts(entry: Entry, collection: Collection) -> Content:
    """CINIC-10: ``…/{train,valid,test}/<class>/<image>``."""
    words = {"train": TRAIN, "valid": VALIDATION, "val": VALIDATION, "validation": VALIDATION, "test": TEST}
    names = sorted(name for name, _ in _members(collection))
    rows = [_ending(name, 3) for name in names]
    _refuse_unknown(entry, {row[0] for row in rows}, list(words), "part")
    _refuse_unknown(entry, {row[1] for row in rows}, entry.classes, "class")
    content = _content(entry, collection, names, [row[1] for row in rows], entry.classes)
    content.part = np.array([words[row[0]] for row in rows], dtype=np.int64)
    for part, word in ((TRAIN, "train"), (VALIDATION, "valid"), (TEST, "test")):
        if part not in content.part:
            raise MNError(f"{entry.name}: no folder {word} with images in it")
    return content


def read_folders(entry: Entry, collection: Collection) -> Content:
    """A folder for each class; the folders' names are the classes."""
    names = sorted(name for name, _ in _members(collection))
    labels = [_ending(name, 2)[0] for name in names]
    found = sorted(set(labels))
    if entry.classes:
        _refuse_unknown(entry, set(found), entry.classes, "class")
    return _content(entry, collection, names, labels, entry.classes or found)


def read_lists(entry: Entry, collection: Collection) -> Content:
    """MNIST-M: ``mnist_m_{train,test}/`` and ``mnist_m_{train,test}_labels.txt`` with ``<file> <label>``."""
    lists: dict[int, dict[str, int]] = {}
    images: dict[str, tuple[int, str]] = {}
    for name, text in _members(collection, texts=("labels.txt",)):
        part = TRAIN if "train" in PurePosixPath(name).parent.name + PurePosixPath(name).name else TEST
        if text is not None:
            lists[part] = _pairs(text, name)
        else:
            images[name] = (part, PurePosixPath(name).name)
    for part, word in ((TRAIN, "train"), (TEST, "test")):
        if part not in lists:
            raise MNError(
                f"{entry.name}: no list of labels for {word} (mnist_m_{word}_labels.txt) among its files"
            )
        files = {file for where, file in images.values() if where == part}
        listed = set(lists[part])
        for missing, what in (
            (listed - files, "listed, but not there"),
            (files - listed, "there, but not listed"),
        ):
            if missing:
                raise MNError(f"{entry.name}: {word} image {min(missing)} is {what} ({len(missing)} in all)")
    names = sorted(images, key=lambda name: (images[name][0], name))
    parts = [images[name][0] for name in names]
    y = [lists[part][images[name][1]] for part, name in zip(parts, names, strict=True)]
    return Content(
        x=MemberImages(collection, names, entry.image_size),
        y=np.array(y, dtype=np.int64),
        part=np.array(parts, dtype=np.int64),
    )


def read_tiny_imagenet(entry: Entry, collection: Collection) -> Content:
    """``train/<wnid>/images/``, and ``val/images/`` with ``val_annotations.txt`` as the test part.

    The published test images have no labels and are passed over.
    """
    train: dict[str, str] = {}
    validation: dict[str, str] = {}
    texts: dict[str, str] = {}
    for name, text in _members(collection, texts=("wnids.txt", "words.txt", "val_annotations.txt")):
        parts = PurePosixPath(name).parts
        if text is not None:
            texts[parts[-1]] = text
        elif "train" in parts:
            train[name] = parts[parts.index("train") + 1]
        elif "val" in parts:
            validation[name] = parts[-1]
    if "val_annotations.txt" not in texts:
        raise MNError(f"{entry.name}: no val/val_annotations.txt among its files")
    labels = {
        line.split("\t")[0]: line.split("\t")[1]
        for line in texts["val_annotations.txt"].splitlines()
        if "\t" in line
    }
    unlisted = sorted(file for file in validation.values() if file not in labels)
    if unlisted:
        raise MNError(f"{entry.name}: val image {unlisted[0]} is not in val_annotations.txt")
    wnids = texts["wnids.txt"].split() if "wnids.txt" in texts else sorted(set(train.values()))
    words = dict(line.split("\t", 1) for line in texts.get("words.txt", "").splitlines() if "\t" in line)
    names = sorted(train) + sorted(validation)
    rows = [train[name] for name in sorted(train)] + [labels[validation[name]] for name in sorted(validation)]
    _refuse_unknown(entry, set(rows), wnids, "class")
    content = _content(entry, collection, names, rows, wnids)
    content.part = np.array([TRAIN] * len(train) + [TEST] * len(validation), dtype=np.int64)
    content.classes = [words.get(wnid, wnid).split(",")[0] for wnid in wnids]
    content.attributes["wnids"] = wnids
    return content


def _members(collection: Collection, texts: Iterable[str] = ()) -> Iterable[tuple[str, str | None]]:
    """Names of the images, and name and content of the text files that end in one of ``texts``."""
    seen = set()
    for member in collection:
        path = PurePosixPath(member.name)
        if path.name.startswith(".") or "__MACOSX" in path.parts:
            continue  # what Macs leave in archives
        is_text = any(path.name.endswith(text) for text in texts)
        if not is_text and path.suffix.lower() not in _SUFFIXES:
            continue
        if member.name in seen:
            raise MNError(f"{member.name}: is there twice; refused")
        seen.add(member.name)
        if is_text:
            yield member.name, member.stream.read(_TEXT_LIMIT).decode("utf-8", errors="replace")
        else:
            yield member.name, None


def _content(
    entry: Entry, collection: Collection, names: list[str], labels: list[str], classes: list[str]
) -> Content:
    return Content(
        x=MemberImages(collection, names, entry.image_size),
        y=_numbers(labels, classes),
        classes=list(classes),
    )


def _numbers(words: list[str], known: list[str]) -> np.ndarray:
    number = {word: i for i, word in enumerate(known)}
    return np.array([number[word] for word in words], dtype=np.int64)


def _ending(name: str, count: int) -> tuple[str, ...]:
    """The last ``count`` parts of a path."""
    parts = PurePosixPath(name).parts
    if len(parts) < count:
        raise MNError(f"{name}: an image outside the folder of a class; move it into one")
    return parts[-count:]


def _pairs(text: str, name: str) -> dict[str, int]:
    pairs: dict[str, int] = {}
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split()
        if not words:
            continue
        if len(words) != 2 or not words[1].isdigit():
            raise MNError(f"{name} line {number}: {line[:60]!r} is not a file name and a label")
        if words[0] in pairs:
            raise MNError(f"{name} line {number}: {words[0]} is listed twice")
        pairs[words[0]] = int(words[1])
    return pairs


def _refuse_unknown(entry: Entry, found: set[str], known: list[str], what: str) -> None:
    unknown = sorted(found - set(known))
    if unknown:
        shown = ", ".join(known[:12]) + (" …" if len(known) > 12 else "")
        raise MNError(f"{entry.name}: a folder or label {unknown[0]!r} is no {what} of it; known: {shown}")
