"""Getting the files of a data set: from its source, from a copy the user has, or from what is kept."""

from __future__ import annotations

import hashlib
import os
import tarfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from stat import S_ISREG

from mn.data.archive import Collection
from mn.data.catalog import Entry, File
from mn.data.fetch import Fetcher
from mn.data.keep import Keep
from mn.data.manifest import RawFile
from mn.data.readers import read
from mn.data.readers.content import Content
from mn.errors import MNError

LOCAL = "local copy"


@dataclass(frozen=True)
class Obtained:
    """A data set's files, all of them kept; ``summary`` is what a reader found, None if it did not look."""

    files: list[RawFile]
    summary: str | None


def obtain(entry: Entry, keep: Keep, fetcher: Fetcher, *, tell: Callable[[str], None]) -> Obtained:
    """The files of a catalogued set: kept ones if there are any, else downloaded.

    Published checksums are verified. Where there is none, the structure is, and the SHA-256 is recorded.
    """
    kept = keep.recall(entry.name)
    if kept is not None and _are_of(entry, kept):
        return Obtained(kept, None)
    if entry.login:
        raise MNError(f"{entry.name}: {' '.join(entry.login.split())}")
    if not entry.files or not all(file.urls for file in entry.files):
        names = ", ".join(file.name for file in entry.files)
        raise MNError(
            f"{entry.name}: {names or 'its files'} cannot be downloaded and is not kept here; "
            f"give it again: pipeline download {entry.name} --from FILE"
        )
    files = []
    for file in entry.files:
        digest, origin = fetcher.fetch(file)
        size = keep.path(digest).stat().st_size
        files.append(RawFile(file.name, size, digest, origin, _how_verified(file)))
    summary = None
    if not all(file.md5 or file.sha256 for file in entry.files):
        content = look(entry, keep, files)
        summary = content.counts
        for note in content.notes:
            tell(f"{entry.name}: {note}")
    keep.remember(entry.name, files)
    return Obtained(files, summary)


def take(entry: Entry, source: Path, keep: Keep, *, tell: Callable[[str], None]) -> Obtained:
    """The files of a set from a file or folder of the user's, once their structure is verified."""
    files = take_files(entry, source, keep)
    content = look(entry, keep, files)
    for note in content.notes:
        tell(f"{entry.name}: {note}")
    keep.remember(entry.name, files)
    return Obtained(files, content.counts)


def take_files(entry: Entry, source: Path, keep: Keep) -> list[RawFile]:
    """Take the user's files in without looking into them; a folder becomes one archive."""
    if not source.exists():
        raise MNError(f"--from {source}: no such file or folder")
    published = {file.name: file for file in [*entry.files, *entry.other_forms]}
    if source.is_dir():
        known = sorted(source / name for name in published if (source / name).is_file())
        if not known:
            return [_packed(source, keep)]
        return [_taken(path, published, keep) for path in known]
    if not S_ISREG(source.stat().st_mode):
        raise MNError(f"--from {source}: neither a regular file nor a folder")
    return [_taken(source, published, keep)]


def _taken(path: Path, published: dict[str, File], keep: Keep) -> RawFile:
    md5 = _md5(path)
    digest = keep.add(path)
    verified = "its structure"
    for file in published.values():
        if (file.md5 and file.md5 == md5) or (file.sha256 and file.sha256 == digest):
            verified = _how_verified(file)
    return RawFile(path.name, path.stat().st_size, digest, LOCAL, verified)


def _packed(folder: Path, keep: Keep) -> RawFile:
    """A folder as one archive, the same bytes for the same files: no times, owners or modes in it."""
    name = f"{folder.resolve().name}.tar"
    with keep.scratch() as scratch:
        path = Path(scratch) / name
        with tarfile.open(path, "w", format=tarfile.PAX_FORMAT) as archive:
            count = 0
            for file in _regular_files(folder):
                info = tarfile.TarInfo(file.relative_to(folder).as_posix())
                info.size = file.stat().st_size
                with file.open("rb") as stream:
                    archive.addfile(info, stream)
                count += 1
        if not count:
            raise MNError(f"--from {folder}: the folder is empty")
        size = path.stat().st_size
        digest = keep.add(path, move=True)
    return RawFile(name, size, digest, LOCAL, "its structure")


def _regular_files(folder: Path) -> list[Path]:
    files = []
    for where, _, names in os.walk(folder, onerror=_raise):
        for name in names:
            path = Path(where) / name
            if name.startswith("."):
                continue
            if not path.is_file():
                raise MNError(f"--from {folder}: {path} is not a regular file; take it out")
            files.append(path)
    return sorted(files)


def _raise(error: OSError) -> None:
    raise MNError(f"--from: {error.filename}: {error.strerror}")


def look(entry: Entry, keep: Keep, files: list[RawFile]) -> Content:
    """What the reader finds in kept files; images are found, not decoded."""
    with keep.scratch() as scratch:
        paths = []
        for file in files:
            path = Path(scratch) / file.name
            path.symlink_to(keep.path(file.sha256).resolve())
            paths.append(path)
        return read(entry, Collection(paths))


def _are_of(entry: Entry, files: list[RawFile]) -> bool:
    """Whether kept files are still the ones that the catalogue asks for, should it have changed."""
    expected = {file.name: file for file in entry.files}
    for file in files:
        published = expected.get(file.name)
        if published and published.sha256 and published.sha256 != file.sha256:
            return False
        if file.origin != LOCAL and (published is None or file.verified != _how_verified(published)):
            return False
    return True


def _how_verified(file: File) -> str:
    if file.sha256:
        return f"SHA-256 {file.sha256}"
    return f"MD5 {file.md5}" if file.md5 else "its structure"


def _md5(path: Path) -> str:
    digest = hashlib.md5(usedforsecurity=False)
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()
