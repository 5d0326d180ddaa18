"""Archives and files that mean harm, or are broken: refused, nothing outside the target, nothing left."""

from __future__ import annotations

import gzip
import io
import lzma
import os
import pickle
import stat
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from mn.data.archive import Collection, Limits, extract
from mn.data.pickles import read_arrays
from mn.errors import MNError
from tests.mn.data import make

GOOD = {"a/one.txt": b"one", "a/b/two.txt": b"two"}


def _tar_of(*infos: tarfile.TarInfo) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for info in infos:
            archive.addfile(info, io.BytesIO(b"x" * info.size))
    return out.getvalue()


def _info(name: str, kind: bytes = tarfile.REGTYPE, link: str = "", size: int = 1) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, link
    info.size = size if kind == tarfile.REGTYPE else 0
    return info


def _zip_of(name: str, mode: int = 0o100644, data: bytes = b"x") -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        info = zipfile.ZipInfo(name)
        info.external_attr = mode << 16
        info.compress_type = zipfile.ZIP_DEFLATED
        archive.writestr(info, data)
    return out.getvalue()


def _encrypted() -> bytes:
    data = bytearray(_zip_of("a.txt"))
    data[6] |= 1
    at = data.rindex(b"PK\x01\x02")
    data[at + 8] |= 1
    return bytes(data)


def _nested(depth: int) -> bytes:
    data = make.tar(GOOD)
    for _ in range(depth):
        data = make.tar({"inner.tar": data})
    return data


def _lying_zip() -> bytes:
    """A member that says 10 bytes and unpacks to a million."""
    data = bytearray(_zip_of("a.bin", data=bytes(1_000_000)))
    local, central = data.index(b"PK\x03\x04"), data.index(b"PK\x01\x02")
    struct.pack_into("<I", data, local + 22, 10)
    struct.pack_into("<I", data, central + 24, 10)
    return bytes(data)


BOMB = bytes(100_000_000)
CRC = zlib.crc32(b"hello").to_bytes(4, "little")

HOSTILE: dict[str, Callable[[], bytes]] = {
    "tar traversal": lambda: _tar_of(_info("../out.txt")),
    "tar deep traversal": lambda: _tar_of(_info("a/b/../../../out.txt")),
    "tar hidden traversal": lambda: _tar_of(_info("a/./../../out.txt")),
    "tar absolute": lambda: _tar_of(_info("/tmp/mn-out.txt")),  # noqa: S108 - what an attacker would write
    "tar windows drive": lambda: _tar_of(_info("C:/out.txt")),
    "tar backslash": lambda: _tar_of(_info("..\\out.txt")),
    "tar newline in name": lambda: _tar_of(_info("a\nb.txt")),
    "tar symlink": lambda: _tar_of(_info("link", tarfile.SYMTYPE, "/etc/passwd")),
    "tar symlink then file": lambda: _tar_of(_info("d", tarfile.SYMTYPE, ".."), _info("d/out.txt")),
    "tar hard link": lambda: _tar_of(_info("link", tarfile.LNKTYPE, "/etc/passwd")),
    "tar character device": lambda: _tar_of(_info("dev", tarfile.CHRTYPE)),
    "tar block device": lambda: _tar_of(_info("dev", tarfile.BLKTYPE)),
    "tar pipe": lambda: _tar_of(_info("pipe", tarfile.FIFOTYPE)),
    "tar good then bad": lambda: _tar_of(_info("good.txt"), _info("../out.txt")),
    "tar.gz traversal": lambda: gzip.compress(_tar_of(_info("../out.txt"))),
    "tar.xz traversal": lambda: lzma.compress(_tar_of(_info("../out.txt"))),
    "tar in tar traversal": lambda: make.tar({"inner.tar": _tar_of(_info("../out.txt"))}),
    "tar in zip link": lambda: _zip_of("i.tar", data=_tar_of(_info("l", tarfile.SYMTYPE, "x"))),
    "tar same name twice": lambda: _tar_of(_info("a.txt"), _info("a.txt")),
    "zip traversal": lambda: _zip_of("../out.txt"),
    "zip absolute": lambda: _zip_of("/out.txt"),
    "zip backslash": lambda: _zip_of("a\\..\\..\\out.txt"),
    "zip symlink": lambda: _zip_of("link", stat.S_IFLNK | 0o777, b"/etc/passwd"),
    "zip device": lambda: _zip_of("dev", stat.S_IFCHR | 0o666),
    "zip pipe": lambda: _zip_of("pipe", stat.S_IFIFO | 0o666),
    "zip bomb": lambda: make.zipped({"zeros": BOMB}),
    "zip in zip bomb": lambda: make.zipped({"inner.zip": make.zipped({"zeros": BOMB})}),
    "zip that lies": _lying_zip,
    "zip encrypted": _encrypted,
    "gz bomb": lambda: gzip.compress(BOMB, 9),
    "xz bomb": lambda: lzma.compress(make.tar({"zeros": BOMB})),
    "tar.gz bomb": lambda: gzip.compress(make.tar({"zeros": BOMB}), 9),
    "nested too deep": lambda: _nested(9),
    "too many files": lambda: make.tar({f"{i}": b"" for i in range(200)}),
    "tar cut in data": lambda: make.tar({"a": bytes(5000)})[:2000],
    "tar.gz cut": lambda: make.tar({"a": os.urandom(5000)}, "gz")[:3000],
    "tar.xz cut": lambda: make.tar({"a": os.urandom(5000)}, "xz")[:3000],
    "zip cut": lambda: make.zipped({"a": os.urandom(5000)})[:3000],
    "zip wrong crc": lambda: _zip_of("a", data=b"hello").replace(CRC, bytes(4)),
    "gz wrong crc": lambda: gzip.compress(b"hello")[:-8] + bytes(8),
    "empty file": lambda: b"",
    "empty tar": lambda: bytes(10240),
    "web page called tar": lambda: b"<!doctype html><html></html>",
    "empty zip": lambda: make.zipped({}),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_refused_and_nothing_is_left(case: str, tmp_path: Path) -> None:
    place = tmp_path / "place"
    place.mkdir()
    archive = tmp_path / "archive.tar"
    archive.write_bytes(HOSTILE[case]())
    before = sorted(tmp_path.rglob("*"))
    limits = Limits(members=100, free=10_000_000, ratio=30)
    with pytest.raises(MNError) as caught:
        extract(archive, place / "target", limits)
    assert "\n" not in str(caught.value)
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("kind", ["tar", "tar.gz", "tar.bz2", "tar.xz", "zip"])
def test_a_good_archive_is_extracted_whole(kind: str, tmp_path: Path) -> None:
    assert extract(make.form(GOOD, kind, tmp_path), tmp_path / "target") == 2
    found = {
        str(path.relative_to(tmp_path / "target")): path.read_bytes()
        for path in (tmp_path / "target").rglob("*.txt")
    }
    assert found == GOOD


def test_extraction_replaces_what_was_there_only_on_success(tmp_path: Path) -> None:
    target = make.folder({"old.txt": b"old"}, tmp_path / "target")
    bad = tmp_path / "bad.tar"
    bad.write_bytes(_tar_of(_info("good.txt"), _info("../out.txt")))
    with pytest.raises(MNError):
        extract(bad, target)
    assert [path.name for path in target.iterdir()] == ["old.txt"]
    extract(make.form(GOOD, "zip", tmp_path), target)
    assert [path.name for path in target.iterdir()] == ["a"]


def test_archives_in_archives_are_folders(tmp_path: Path) -> None:
    inner = {
        "regression.tar.gz": make.tar({"regression/T/T.data": b"1,2\n"}, "gz"),
        "x.csv.gz": gzip.compress(b"3\n"),
    }
    names = {member.name: member.read() for member in Collection([make.form(inner, "zip", tmp_path)])}
    assert names == {"regression/regression/T/T.data": b"1,2\n", "x.csv": b"3\n"}


class _Runs:
    """What a hostile pickle does: name a function and its arguments, to be called by whoever loads it."""

    def __init__(self, function: Callable[..., object], *arguments: object) -> None:
        self._call = (function, arguments)

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        return self._call


@pytest.mark.parametrize("protocol", [0, 2, 4, 5])
@pytest.mark.parametrize("name", ["system", "eval", "open", "ndarray", "object array", "getattr", "nested"])
def test_a_pickle_runs_nothing(name: str, protocol: int, tmp_path: Path) -> None:
    mark = tmp_path / "executed"
    harm = {
        "system": _Runs(os.system, f"touch {mark}"),
        "eval": _Runs(eval, f"open({str(mark)!r}, 'w')"),
        "open": _Runs(open, str(mark), "w"),
        "ndarray": _Runs(np.ndarray, (1 << 40,)),
        "object array": np.array([_Runs(open, str(mark), "w")], dtype=object),
        "getattr": _Runs(getattr, "x", "upper"),
        "nested": {"data": [1, {"labels": _Runs(os.mkdir, str(mark))}]},
    }[name]
    with pytest.raises(MNError, match="refused"):
        read_arrays(pickle.dumps(harm, protocol), "batch")
    assert not mark.exists()


@pytest.mark.parametrize("protocol", [0, 1, 2, 3, 4, 5])
def test_a_pickle_of_arrays_is_read(protocol: int) -> None:
    batch = {
        "data": np.arange(12, dtype=np.uint8).reshape(3, 4),
        "labels": [1, 2, 3],
        b"name": "x",
        "n": np.int64(7),
    }
    found = read_arrays(pickle.dumps(batch, protocol), "batch")
    assert np.array_equal(found["data"], batch["data"])
    assert found["data"].dtype == np.uint8
    assert found["labels"] == [1, 2, 3]
    assert found["n"] == 7
