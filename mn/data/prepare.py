"""From raw files to the HDF5 file: layout, splits, provenance."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import PIL

from mn.data.archive import Collection
from mn.data.catalog import Entry, SplitRule
from mn.data.folds import Split, everything, grouped_kfold, holdout, kfold, published
from mn.data.images import RESIZE
from mn.data.manifest import read_manifest
from mn.data.readers import read
from mn.data.readers.content import TEST, TRAIN, Content
from mn.data.write import write_dataset
from mn.errors import MNError
from mn.files import sha256


def prepare(
    entry: Entry,
    raw: Path,
    target: Path,
    *,
    rows: int | None = None,
    limit: float | None = None,
    tell: Callable[[str], None] = lambda _: None,
) -> None:
    """Write ``target`` from the raw folder; ``rows`` keeps that many, drawn with a fixed seed.

    ``limit`` is how many standard deviations from the mean a table's inputs may lie. ``tell`` is called with
    each line a person should read.
    """
    if entry.source != "files":
        _prepare_embedded(entry, raw / f"{entry.name}.npz", target, rows, limit)
        return
    files = read_manifest(raw, entry.name)
    content = read(entry, Collection([raw / file.name for file in files]))
    for note in [content.counts, *content.notes]:
        tell(f"{entry.name}: {note}")
    keep = _chosen(len(content.y), rows)
    y = content.y[keep]
    images = not isinstance(content.x, np.ndarray)
    versions = {"h5py": h5py.__version__, "numpy": np.__version__}
    provenance: dict[str, Any] = {
        "source": [file.origin for file in files],
        "raw_sha256": {file.name: file.sha256 for file in files},
        "verified": [file.verified for file in files],
        "rows": "all" if rows is None else rows,
        "notes": content.notes,
        "versions": versions | ({"pillow": PIL.__version__} if images else {}),
    }
    if images:
        provenance["resize"] = f"{entry.image_size} pixels, {RESIZE}"
    attributes = {
        **content.attributes,
        **({"coarse_classes": entry.coarse_classes} if entry.coarse_classes else {}),
        **({"domains": entry.domains} if entry.domains else {}),
    }
    write_dataset(
        target,
        entry.model_copy(update={"classes": content.classes or entry.classes}),
        content.x[keep] if isinstance(content.x, np.ndarray) else content.x,
        y,
        all_splits(entry, content, keep),
        provenance,
        keep=keep,
        extra={name: array[keep] for name, array in content.extra.items()},
        attributes=attributes,
        limit=limit,
    )


def all_splits(entry: Entry, content: Content, keep: np.ndarray) -> dict[str, Split]:
    """The paper's protocol and, where it differs, the held-out one."""
    assert entry.split is not None
    splits = dict(zip(entry.split_names, _splits(entry, entry.split, content, keep), strict=True))
    if entry.heldout is not None:
        heldout = _splits(entry, entry.heldout, content, keep)
        splits |= dict(zip(entry.heldout_names, heldout, strict=True))
    return splits


def _splits(entry: Entry, rule: SplitRule, content: Content, keep: np.ndarray) -> list[Split]:
    y = content.y[keep]
    classes = y if entry.task == "classification" else None
    try:
        if rule.folds:
            share = _share(rule)
            if rule.by_group:
                assert content.group is not None
                groups = content.group[keep]
                return grouped_kfold(groups, folds=rule.folds, validation=share, seed=rule.seed)
            return kfold(len(y), folds=rule.folds, validation=share, seed=rule.seed)
        if rule.test == "everything":
            return [everything(_strata(content, keep), validation=_share(rule), seed=rule.seed)]
        if rule.test == "published":
            part = _published_part(entry, rule, content)[keep]
            share_or_none = None if rule.validation == "published" else rule.validation
            return [published(part, classes, validation=share_or_none, seed=rule.seed)]
        assert rule.test is not None
        return [holdout(_strata(content, keep), validation=_share(rule), test=rule.test, seed=rule.seed)]
    except ValueError as error:
        raise MNError(f"{entry.name}: {len(y)} rows cannot be split ({error}); use more") from None


def _share(rule: SplitRule) -> float:
    if rule.validation == "published":
        raise MNError("catalogue: validation: published needs test: published")
    return rule.validation


def _strata(content: Content, keep: np.ndarray) -> np.ndarray:
    """What each part should have in proportion: classes and, where there are any, domains."""
    strata: np.ndarray = content.y[keep]
    if "domain" in content.extra:
        strata = strata + (strata.max() + 1) * content.extra["domain"][keep]
    return strata


def _published_part(entry: Entry, rule: SplitRule, content: Content) -> np.ndarray:
    if rule.train_first is not None:
        return np.where(np.arange(len(content.y)) < rule.train_first, TRAIN, TEST)
    if content.part is None:
        raise MNError(
            f"catalogue entry {entry.name}: test: published, but format {entry.format} has no parts"
        )
    return content.part


def _chosen(count: int, rows: int | None) -> np.ndarray:
    if rows is None or rows >= count:
        return np.arange(count)
    return np.sort(np.random.default_rng(0).choice(count, rows, replace=False))


def _prepare_embedded(entry: Entry, raw: Path, target: Path, rows: int | None, limit: float | None) -> None:
    """A set that came as one ``.npz`` of arrays."""
    try:
        with np.load(raw, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
    except FileNotFoundError:
        raise MNError(f"{raw}: no such file; run: pipeline download {entry.name}") from None
    except (OSError, ValueError) as error:
        raise MNError(f"{raw}: cannot be read ({error}); download it again") from None
    keep = _chosen(len(arrays["x"]), rows)
    x, y, part = arrays["x"][keep], arrays["y"][keep], arrays.get("part")
    if entry.kind == "images":
        x = _as_images(x)
    if entry.task == "regression":
        y = y.reshape(len(y), -1)
    provenance: dict[str, Any] = {
        "source": entry.source,
        "raw_sha256": sha256(raw),
        "rows": "all" if rows is None else rows,
        "versions": {"h5py": h5py.__version__, "numpy": np.__version__},
    }
    if part is not None:
        splits = {"main": published(part[keep], None, validation=None, seed=0)}
    else:
        splits = all_splits(entry, Content(x=x, y=y), np.arange(len(y)))
    write_dataset(target, entry, x, y, splits, provenance, limit=limit)


def _as_images(x: np.ndarray) -> np.ndarray:
    """Grey images in their own range ``(N, H, W)`` to uint8 over the full range, ``(N, 1, H, W)``."""
    pixels: np.ndarray = np.round(x * (255.0 / x.max())).astype(np.uint8)
    return pixels[:, None]
