"""Downloading a file: streamed, resumed where it was cut, from the next address if one fails, verified.

What has come so far lies in a partial file, so that neither a dropped line nor Ctrl-C nor a restart loses it.
A file gets its final name only when it is whole and its checksum (if one was published) is right.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import requests
import urllib3

from mn.data.catalog import File
from mn.data.keep import Keep
from mn.data.progress import Meter, silent
from mn.errors import MNError

_CHUNK = 1 << 18
_HEADERS = {"Accept-Encoding": "identity", "User-Agent": "meta-neighborhoods"}
_LOST = (requests.RequestException, urllib3.exceptions.HTTPError)


class _Failed(Exception):
    """This address will not do; the text says why."""


class Fetcher:
    """Downloads files into a :class:`Keep`.

    Args:
        keep: Where finished and partial files lie.
        meter: Shows progress; see :mod:`mn.data.progress`.
        patience: Seconds without a byte after which a server counts as stalled.
        attempts: Attempts in a row that bring nothing, before an address is given up. One that brings
            something starts the count anew: a line that drops every minute only takes longer.
        sleep: Waits between attempts.
    """

    def __init__(
        self,
        keep: Keep,
        *,
        meter: Callable[[str], Meter] = silent,
        patience: float = 30.0,
        attempts: int = 5,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._keep = keep
        self._meter = meter
        self._patience = patience
        self._attempts = attempts
        self._sleep = sleep

    def fetch(self, file: File) -> tuple[str, str]:
        """Return the SHA-256 under which the file is kept, and the address it came from."""
        failures = []
        for url in file.urls:
            # With a checksum it does not matter which address a part came from.
            partial = self._keep.partial(file.sha256 or file.md5 or url)
            partial.parent.mkdir(parents=True, exist_ok=True)
            with _locked(partial), requests.Session() as session:
                try:
                    return self._from(session, file, url, partial), url
                except _Failed as failure:
                    failures.append(f"{_host(url)}: {failure}")
                except OSError as error:
                    if error.errno in (errno.ENOSPC, errno.EDQUOT):
                        raise MNError(
                            f"{file.name}: the disk of {self._keep.root} is full; make room"
                        ) from None
                    raise
        raise MNError(
            f"{file.name} could not be downloaded ({'; '.join(failures)}); try again later, "
            "or get it elsewhere and use --from"
        )

    def _from(self, session: requests.Session, file: File, url: str, partial: Path) -> str:
        """Try one address until the file is whole and right."""
        for fresh in (False, True):
            if fresh:
                _forget(partial)
            self._complete(session, file, url, partial)
            wrong = _wrong(file, partial)
            if wrong is None:
                digest = self._keep.add(partial, move=True)
                _forget(partial)
                return digest
            # A part from before may be the reason: once more, from the first byte.
            _forget(partial)
        raise _Failed(wrong or "")

    def _complete(self, session: requests.Session, file: File, url: str, partial: Path) -> None:
        idle = 0
        while True:
            before = _size(partial)
            try:
                with self._meter(file.name) as meter:
                    self._attempt(session, file, url, partial, meter)
                return
            except requests.TooManyRedirects:
                raise _Failed("redirects without end") from None
            except (requests.exceptions.InvalidURL, requests.exceptions.InvalidSchema) as error:
                raise _Failed(f"not an address to download from ({error})") from None
            except _LOST as error:
                reason = _reason(error)
            idle = idle + 1 if _size(partial) <= before else 0
            if idle >= self._attempts:
                raise _Failed(f"{reason}, {idle} times in a row")
            self._sleep(min(60.0, 0.5 * 2**idle))

    def _attempt(self, session: requests.Session, file: File, url: str, partial: Path, meter: Meter) -> None:
        have = _size(partial)
        note = partial.with_suffix(".json")
        headers = dict(_HEADERS)
        if have:
            headers["Range"] = f"bytes={have}-"
            if not (file.md5 or file.sha256) and (tag := _tag(note)):
                headers["If-Range"] = tag  # without a checksum, a file that changed must start anew
        timeout = (self._patience, self._patience)
        with session.get(url, headers=headers, stream=True, timeout=timeout) as response:
            status = response.status_code
            if status == 416 and have:
                if _total(response) == have:
                    return
                _forget(partial)
                raise requests.ConnectionError("the part that was there did not fit")
            if status in (408, 425, 429) or status >= 500:
                raise requests.ConnectionError(f"the server answered {status}")
            if status not in (200, 206):
                raise _Failed(f"the server answered {status}")
            if status == 206 and _start(response) != have:
                _forget(partial)
                raise requests.ConnectionError("the server sent another part than asked for")
            self._receive(response, file, partial, note, have if status == 206 else 0, meter)

    def _receive(
        self, response: requests.Response, file: File, partial: Path, note: Path, have: int, meter: Meter
    ) -> None:
        length = response.headers.get("Content-Length")
        total = have + int(length) if length and length.isdigit() else None
        if file.size is not None and total is not None and total != file.size:
            raise _Failed(f"has {total:,} bytes, {file.size:,} were published")
        tag = response.headers.get("ETag") or response.headers.get("Last-Modified")
        if tag and not tag.startswith("W/"):
            note.write_text(json.dumps({"tag": tag}), encoding="utf-8")
        meter.start(have, total or file.size)
        with partial.open("r+b" if have else "wb") as out:
            out.seek(have)
            out.truncate()
            # The bytes as they are: a server that marks a .gz as an encoding must not have it unpacked.
            for chunk in response.raw.stream(_CHUNK, decode_content=False):
                if out.tell() == 0 and _is_page(chunk):
                    raise _Failed("a web page came in place of the file")
                out.write(chunk)
                meter.advance(len(chunk))
                if file.size is not None and out.tell() > file.size:
                    raise _Failed(f"more than the {file.size:,} bytes that were published")
            out.flush()
            os.fsync(out.fileno())
        if total is not None and _size(partial) < total:
            raise requests.ConnectionError("the connection was cut")


@contextmanager
def _locked(partial: Path) -> Iterator[None]:
    """Let one process at a time work on a partial file; another waits and then finds it further on."""
    with partial.with_suffix(".lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _wrong(file: File, path: Path) -> str | None:
    """What is wrong with a whole file, or None."""
    size = _size(path)
    if file.size is not None and size != file.size:
        return f"has {size:,} bytes, {file.size:,} were published"
    if size == 0:
        return "the file is empty"
    for name, expected in (("sha256", file.sha256), ("md5", file.md5)):
        if expected:
            digest = hashlib.new(name, usedforsecurity=False)
            with path.open("rb") as stream:
                while block := stream.read(1 << 20):
                    digest.update(block)
            found = digest.hexdigest()
            if found != expected:
                return f"its {name.upper()} is {found}, {expected} was published"
    return None


def _is_page(head: bytes) -> bool:
    start = head[:200].lstrip().lower()
    return start.startswith((b"<!doctype html", b"<html"))


def _start(response: requests.Response) -> int | None:
    """Where a 206 begins: ``Content-Range: bytes 100-199/200``."""
    words = response.headers.get("Content-Range", "").replace("bytes", "").strip().split("-")
    return int(words[0]) if words[0].isdigit() else None


def _total(response: requests.Response) -> int | None:
    words = response.headers.get("Content-Range", "").rpartition("/")[2]
    return int(words) if words.isdigit() else None


def _reason(error: Exception) -> str:
    """One clause for what a library says in three lines."""
    if isinstance(error, (requests.Timeout, urllib3.exceptions.TimeoutError)) or "timed out" in str(error):
        return "the server stalled"
    if isinstance(error, requests.ConnectionError) and error.args and isinstance(error.args[0], str):
        return error.args[0]
    if isinstance(error, urllib3.exceptions.ProtocolError) or "onnection" in type(error).__name__:
        return "no connection, or it was cut"
    return type(error).__name__


def _tag(note: Path) -> str | None:
    try:
        return str(json.loads(note.read_text(encoding="utf-8"))["tag"])
    except (FileNotFoundError, ValueError, KeyError):
        return None


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _forget(partial: Path) -> None:
    partial.unlink(missing_ok=True)
    partial.with_suffix(".json").unlink(missing_ok=True)


def _host(url: str) -> str:
    return urlsplit(url).hostname or url
