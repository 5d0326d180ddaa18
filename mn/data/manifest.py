"""``SOURCE.json`` in a raw folder: which files it holds, where from, and how each was verified."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from mn.errors import MNError

MANIFEST = "SOURCE.json"


@dataclass(frozen=True)
class RawFile:
    """A finished file. ``origin`` is an address, or ``local copy``; no machine's paths."""

    name: str
    size: int
    sha256: str
    origin: str
    verified: str


def write_manifest(folder: Path, files: Sequence[RawFile]) -> None:
    text = json.dumps([asdict(file) for file in files], indent=1)
    (folder / MANIFEST).write_text(text + "\n", encoding="utf-8")


def read_manifest(folder: Path, dataset: str) -> list[RawFile]:
    """The files of a raw folder; each has to be there in its size."""
    try:
        rows = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        files = [RawFile(**row) for row in rows]
    except FileNotFoundError:
        raise MNError(f"{folder}: no data here; run: pipeline download {dataset}") from None
    except (ValueError, TypeError):
        raise MNError(f"{folder / MANIFEST}: damaged; run again: pipeline download {dataset}") from None
    for file in files:
        path = folder / file.name
        if not path.is_file() or path.stat().st_size != file.size:
            raise MNError(f"{path}: missing or changed; run again: pipeline download {dataset}")
    return files
