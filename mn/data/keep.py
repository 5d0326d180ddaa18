"""Finished and unfinished downloads, kept outside DVC's outputs.

DVC deletes a stage's outputs before it runs the stage again. So that this costs nobody a download, every file
lies here under its SHA-256, and a raw folder holds hard links to it. Also here: what has come of a file that
is not finished, and which files each data set was last made of.

    files/<sha256>          finished files
    partial/<key>           unfinished ones, see mn.data.fetch
    sets/<name>.json        the files of a data set
"""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from mn.data.manifest import RawFile, write_manifest
from mn.files import link_or_copy, replacing, replacing_folder, sha256


class Keep:
    """The folder ``root`` (``.mn/downloads``) as a place for downloads."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def path(self, digest: str) -> Path:
        return self.root / "files" / digest

    def partial(self, key: str) -> Path:
        return self.root / "partial" / hashlib.sha256(key.encode()).hexdigest()[:32]

    def add(self, source: Path, *, move: bool = False) -> str:
        """Take a file in, by a hard link or a copy (or a move), and return its SHA-256."""
        digest = sha256(source)
        target = self.path(digest)
        if not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            if move:
                source.replace(target)
            else:
                # Copied, not linked: a user who edits the original must not change what is kept here.
                with replacing(target) as aside:
                    _copy(source, aside)
        if move:
            source.unlink(missing_ok=True)
        return digest

    def scratch(self) -> tempfile.TemporaryDirectory[str]:
        """A folder on the same disk for what is made before it is taken in; gone afterwards."""
        self.root.mkdir(parents=True, exist_ok=True)
        return tempfile.TemporaryDirectory(dir=self.root, prefix="scratch-")

    def remember(self, dataset: str, files: Sequence[RawFile]) -> None:
        with replacing(self.root / "sets" / f"{dataset}.json") as aside:
            aside.write_text(json.dumps([asdict(file) for file in files], indent=1), encoding="utf-8")

    def recall(self, dataset: str) -> list[RawFile] | None:
        """The files a data set was last made of, if all of them are still here."""
        try:
            text = (self.root / "sets" / f"{dataset}.json").read_text(encoding="utf-8")
            files = [RawFile(**row) for row in json.loads(text)]
        except (FileNotFoundError, ValueError, TypeError):
            return None
        return files if all(self.has(file.sha256, file.size) for file in files) else None

    def forget(self, dataset: str) -> None:
        """Forget which files a data set was made of; the files stay for others that use them."""
        (self.root / "sets" / f"{dataset}.json").unlink(missing_ok=True)

    def has(self, digest: str, size: int) -> bool:
        path = self.path(digest)
        return path.is_file() and path.stat().st_size == size

    def lay_out(self, files: Sequence[RawFile], folder: Path) -> None:
        """Make ``folder`` hold these files and their ``SOURCE.json``, and nothing else."""
        with replacing_folder(folder) as aside:
            for file in files:
                link_or_copy(self.path(file.sha256), aside / file.name)
            write_manifest(aside, files)


def _copy(source: Path, target: Path) -> None:
    with source.open("rb") as reading, target.open("wb") as writing:
        while block := reading.read(1 << 20):
            writing.write(block)
