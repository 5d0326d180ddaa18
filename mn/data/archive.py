"""Reading archives that nobody vouches for: nothing is ever written to the disk by a name they choose.

:class:`Collection` walks files, ``.tar`` (plain, gz, bz2, xz), ``.zip`` and ``.gz``, and archives inside
archives, as one sequence of members. Each name is checked before a byte of the member is read: no absolute
path, no ``..``, no link, no device. What comes out is counted, not believed: a member that says 1 kB and
unpacks to 1 TB is cut off. :func:`extract` writes members below a folder, under the same rules.
"""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import shutil
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import IO, Literal, cast

from mn.errors import MNError
from mn.files import replacing_folder

_DAMAGE = (
    tarfile.TarError,
    zipfile.BadZipFile,
    gzip.BadGzipFile,
    lzma.LZMAError,
    zlib.error,
    EOFError,
    OSError,
    NotImplementedError,  # a zip compressed by a method Python does not know
    RuntimeError,  # an encrypted zip
    ValueError,
)


@dataclass(frozen=True)
class Limits:
    """What an archive may unpack to. The defaults hold ImageNet (150 GB, 1.3 million files)."""

    members: int = 5_000_000
    total: int = 10**12  # an archive in an archive counts twice
    ratio: int = 200  # unpacked : packed, beyond `free`; real images and tables stay below 30
    free: int = 64 * 10**6
    depth: int = 6  # archives in archives, each compression counting as one


@dataclass(frozen=True)
class Member:
    """A file in a collection. ``stream`` is valid until the next member is asked for."""

    name: str
    stream: IO[bytes] = field(repr=False)

    def read(self) -> bytes:
        return self.stream.read()


class Collection:
    """The files of a data set, looked at through all the archives around them, in a fixed order.

    Args:
        paths: Plain files or archives.
        limits: What they may unpack to, together.
    """

    def __init__(self, paths: list[Path], limits: Limits | None = None) -> None:
        self.paths = paths
        self._limits = limits or Limits()

    def __iter__(self) -> Iterator[Member]:
        packed = sum(path.stat().st_size for path in self.paths)
        budget = _Budget(self._limits, packed)
        for path in self.paths:
            try:
                with path.open("rb") as file:
                    yield from _walk(path.name, file, path.name, budget, depth=0, prefix="")
            except _DAMAGE as error:
                if isinstance(error, OSError) and error.errno is not None:
                    raise MNError(f"{path}: cannot be read ({error.strerror})") from None
                text = " ".join(str(error).split()) or type(error).__name__
                raise MNError(f"{path.name}: damaged or cut short ({text}); get it again") from None


def extract(archive: Path, target: Path, limits: Limits | None = None) -> int:
    """Write an archive's members below ``target``, all or nothing; return how many there are."""
    count = 0
    with replacing_folder(target) as aside:
        for member in Collection([archive], limits):
            path = aside.joinpath(*PurePosixPath(member.name).parts)
            path.parent.mkdir(parents=True, exist_ok=True)
            if path.exists():
                raise MNError(f"{archive.name}: holds {member.name!r} twice; refused")
            with path.open("xb") as file:
                shutil.copyfileobj(member.stream, file, 1 << 20)
            count += 1
    return count


class _Budget:
    """Counts what has come out of the archives, and stops a bomb."""

    def __init__(self, limits: Limits, packed: int) -> None:
        self._limits = limits
        self._allowed = min(limits.total, limits.free + limits.ratio * packed)
        self._bytes = 0
        self._members = 0

    @property
    def depth(self) -> int:
        return self._limits.depth

    def member(self, where: str) -> None:
        self._members += 1
        if self._members > self._limits.members:
            raise MNError(f"{where}: more than {self._limits.members:,} files; refused")

    def spend(self, count: int, where: str) -> None:
        self._bytes += count
        if self._bytes > self._allowed:
            raise MNError(
                f"{where}: unpacks to more than {self._allowed:,} bytes; refused as an archive bomb"
            )


class _Counted(io.RawIOBase):
    """A stream whose bytes are charged to a budget."""

    def __init__(self, stream: IO[bytes], budget: _Budget, where: str) -> None:
        self._stream = stream
        self._budget = budget
        self._where = where

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        data = self._stream.read(len(buffer))
        self._budget.spend(len(data), self._where)
        buffer[: len(data)] = data
        return len(data)


def _walk(
    name: str, stream: IO[bytes], where: str, budget: _Budget, depth: int, prefix: str
) -> Iterator[Member]:
    """A file as members: itself, or what is in it if it is an archive (told by content, not by name).

    ``prefix`` is the folder that an archive inside another one stands for: ``a/b.tar`` is ``a/b/``.
    """
    if depth > budget.depth:
        raise MNError(f"{where}: archives nested more than {budget.depth} deep; refused")
    head, stream = _peek(stream)
    if head[:4] in (b"PK\x03\x04", b"PK\x05\x06"):
        yield from _zip_members(stream, where, budget, depth, prefix)
    elif (opener := _decompressor(head)) is not None:
        with opener(stream) as unpacked:
            inner = io.BufferedReader(_Counted(unpacked, budget, where), 1 << 18)
            yield from _walk(_without_suffix(name), inner, where, budget, depth + 1, prefix)
    elif head[257:262] == b"ustar" or (name.lower().endswith(".tar") and _is_old_tar(head)):
        yield from _tar_members(stream, where, budget, depth, prefix)
    else:
        if not head and depth == 0:
            raise MNError(f"{where}: the file is empty; get it again")
        if _folder(name) != name + "/":
            raise MNError(f"{where}: not the archive that its name says; get it again")
        budget.member(where)
        yield Member(name, stream)


def _peek(stream: IO[bytes]) -> tuple[bytes, IO[bytes]]:
    """The first 512 bytes, and a stream that still has them."""
    if stream.seekable():
        head = stream.read(512)
        stream.seek(0)
        return head, stream
    reader = stream if isinstance(stream, io.BufferedReader) else io.BufferedReader(stream, 1 << 18)  # type: ignore[type-var]
    head = reader.peek(512)[:512]
    return head, reader


def _decompressor(head: bytes) -> Callable[[IO[bytes]], IO[bytes]] | None:
    if head[:3] == b"\x1f\x8b\x08":
        return lambda stream: cast(IO[bytes], gzip.GzipFile(fileobj=stream))
    if head[:6] == b"\xfd7zXZ\x00":
        return lambda stream: cast(IO[bytes], lzma.LZMAFile(stream))
    if head[:3] == b"BZh" and head[4:10] == b"1AY&SY":
        return lambda stream: cast(IO[bytes], bz2.BZ2File(stream))
    return None


def _is_old_tar(head: bytes) -> bool:
    """A tar from before the ``ustar`` mark: its header's checksum adds up."""
    if len(head) < 512 or not head[0]:
        return False
    try:
        tarfile.TarInfo.frombuf(head, "utf-8", "surrogateescape")
    except tarfile.HeaderError:
        return False
    return True


def _without_suffix(name: str) -> str:
    for suffix in (".gz", ".xz", ".bz2"):
        if name.lower().endswith(suffix):
            return name[: -len(suffix)]
    return name


def _tar_members(stream: IO[bytes], where: str, budget: _Budget, depth: int, prefix: str) -> Iterator[Member]:
    seen = False
    # A plain file is skipped through by seeking, anything else by reading on.
    mode: Literal["r:", "r|"] = "r:" if stream.seekable() else "r|"
    with tarfile.open(fileobj=stream, mode=mode, bufsize=1 << 20) as archive:
        for info in archive:
            if info.isdir():
                budget.member(where)
                continue
            name = prefix + safe_name(info.name, where)
            if info.issym() or info.islnk():
                raise MNError(f"{where}: {name!r} is a link; refused, links are not needed and not safe")
            if info.type not in (tarfile.REGTYPE, tarfile.AREGTYPE):
                raise MNError(f"{where}: {name!r} is not a regular file; refused")
            file = archive.extractfile(info)
            assert file is not None
            counted = io.BufferedReader(_Counted(file, budget, where), 1 << 16)
            yield from _walk(name, counted, f"{where}/{name}", budget, depth + 1, _folder(name))
            # tarfile keeps every header it has read; a million of them is memory for nothing.
            archive.members = []  # type: ignore[attr-defined]
            seen = True
        if not seen:
            raise MNError(f"{where}: the archive is empty; get it again")


def _zip_members(stream: IO[bytes], where: str, budget: _Budget, depth: int, prefix: str) -> Iterator[Member]:
    if not stream.seekable():
        with tempfile.TemporaryFile() as spooled:
            shutil.copyfileobj(stream, spooled, 1 << 20)
            spooled.seek(0)
            yield from _zip_members(spooled, where, budget, depth, prefix)
        return
    with zipfile.ZipFile(stream) as archive:
        infos = archive.infolist()
        if not infos:
            raise MNError(f"{where}: the archive is empty; get it again")
        for info in infos:
            if info.is_dir():
                budget.member(where)
                continue
            name = prefix + safe_name(info.filename, where)
            kind = (info.external_attr >> 16) & 0o170000
            if kind == 0o120000:
                raise MNError(f"{where}: {name!r} is a link; refused, links are not needed and not safe")
            if kind not in (0, 0o100000):
                raise MNError(f"{where}: {name!r} is not a regular file; refused")
            with archive.open(info) as file:
                counted = io.BufferedReader(_Counted(file, budget, where), 1 << 16)
                yield from _walk(name, counted, f"{where}/{name}", budget, depth + 1, _folder(name))


def _folder(name: str) -> str:
    for suffix in (".tar.gz", ".tar.xz", ".tar.bz2", ".tgz", ".tar", ".zip"):
        if name.lower().endswith(suffix):
            return name[: -len(suffix)] + "/"
    return name + "/"


def safe_name(name: str, where: str) -> str:
    """A member's name as a relative path that stays below wherever it is put."""
    parts = PurePosixPath(name).parts
    drive = len(name) > 1 and name[1] == ":" and name[0].isalpha()
    if not parts or name.startswith(("/", "\\")) or drive:
        raise MNError(f"{where}: member {name!r} has an absolute or empty path; refused")
    if ".." in parts or "\\" in name or not name.isprintable():
        raise MNError(f"{where}: member {name!r} would leave its folder; refused")
    return "/".join(part for part in parts if part != ".")
