"""The run store: finished runs, found by the hash of everything that can change their result.

``<root>/runs/<key>/``   a finished run: it appears whole, by a rename, and is never written to again
``<root>/work/<key>/``   an unfinished one: its checkpoints, and a lock that only its process holds

The store is shared by every way of running: stage commands, DVC, DVC's queued experiments, the workers of
a cluster. On one machine the lock keeps two processes off one run. Over NFS it does so between machines
too (Linux sends ``flock`` to the server), with three limits. A client cut off for longer than its lease
(NFSv4, about 90 s) loses the lock while its process lives on. A machine that dies frees its locks when the
lease ends; with NFSv3 only when it starts again, and until then its runs are waited for. And a client may
see a finished run, or a request to stop, up to a minute late. So a run can be computed twice there; it is
stored once all the same: the first to be renamed into place stays.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mn.engine.config import RunConfig
from mn.files import replacing, sync

RECORD = "run.json"
KEY_LENGTH = 20  # hexadecimal digits, 80 bits


def run_key(config: RunConfig, *, data: str, code: str) -> str:
    """The run's name in the store: a hash of its configuration, its input file and its code."""
    parts = {"config": config.identity(), "data": data, "code": code}
    text = json.dumps(parts, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:KEY_LENGTH]


@dataclass(frozen=True)
class StoredRun:
    """A run in the store."""

    key: str
    folder: Path
    finished: bool
    variant: str | None = None  # the row of a table it was asked for as; the run itself knows of none

    @property
    def config(self) -> RunConfig:
        config = RunConfig.from_identity(self.record["config"])
        return config.model_copy(update={"variant": self.variant})

    @property
    def record(self) -> dict[str, Any]:
        """Configuration, and for a finished run what computed it and how long that took."""
        record: dict[str, Any] = json.loads((self.folder / RECORD).read_text(encoding="utf-8"))
        return record

    @property
    def described(self) -> bool:
        """False for a work folder whose process ended before it wrote anything down."""
        return (self.folder / RECORD).exists()

    @property
    def size(self) -> int:
        """Bytes on disk."""
        return sum(found.st_size for found in self._stats() if stat.S_ISREG(found.st_mode))

    @property
    def modified(self) -> float:
        """When it was last written to, in seconds since the epoch."""
        return max((found.st_mtime for found in self._stats()), default=0.0)

    def _stats(self) -> Iterator[os.stat_result]:
        """Of the folder and all that is in it. A process at work on it may take away what was just listed."""
        for folder, _, files in os.walk(self.folder):
            for path in (Path(folder), *(Path(folder, file) for file in files)):
                with suppress(FileNotFoundError):
                    yield path.stat()


class RunStore:
    """Finished and unfinished runs below one folder."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._runs = root / "runs"
        self._work = root / "work"

    def finished(self, key: str) -> StoredRun | None:
        folder = self._runs / key
        return StoredRun(key, folder, True) if folder.is_dir() else None

    @contextmanager
    def claim(self, key: str, config: RunConfig) -> Iterator[Path]:
        """Hold a run's work folder alone; wait if another process holds it.

        The lock goes with the process, however that ends, so a killed run can be taken up at once. A
        process that waited should look for the finished run before it starts.
        """
        folder = self._work / key
        with self._lock(key):
            folder.mkdir(parents=True, exist_ok=True)
            with replacing(folder / RECORD) as aside:
                aside.write_text(json.dumps({"config": config.identity()}), encoding="utf-8")
            yield folder

    def finish(self, key: str, output: Path, record: dict[str, Any]) -> StoredRun:
        """Make the files in ``output`` the finished run, in one rename.

        A run that is finished already stays as it is, and ``output`` is discarded.
        """
        folder = self._runs / key
        try:
            (output / RECORD).write_text(json.dumps(record, indent=1, sort_keys=True), encoding="utf-8")
            for file in output.rglob("*"):
                if file.is_file():
                    file.chmod(0o444)  # results/ may share these very files by hard links
                sync(file)
            self._runs.mkdir(parents=True, exist_ok=True)
            output.rename(folder)  # refused where there is a folder with something in it
        except OSError:
            # Another process has finished it, and may have removed ``output`` with the work folder.
            if self.finished(key) is None:
                raise
            shutil.rmtree(output, ignore_errors=True)
        sync(self._runs)
        self._discard(key)
        return StoredRun(key, folder, True)

    def entries(self) -> list[StoredRun]:
        """Everything in the store, oldest first."""
        found = {path.name: StoredRun(path.name, path, False) for path in _folders(self._work)}
        found |= {path.name: StoredRun(path.name, path, True) for path in _folders(self._runs)}
        return sorted(found.values(), key=lambda run: (run.modified, run.key))

    def remove(self, run: StoredRun) -> bool:
        """Delete a run; False if a process is at work on it."""
        try:
            with self._lock(run.key, wait=False):
                # Out of the way first: a half-deleted folder must not be taken for a run.
                doomed = self._work / f".{run.key}.removed"
                shutil.rmtree(doomed, ignore_errors=True)
                if run.folder.exists():
                    run.folder.rename(doomed)
                shutil.rmtree(doomed, ignore_errors=True)
                self._discard(run.key)
        except BlockingIOError:
            return False
        return True

    def _discard(self, key: str) -> None:
        """Remove what a run needed while it was unfinished. Its lock is held."""
        shutil.rmtree(self._work / key, ignore_errors=True)
        self._lock_file(key).unlink(missing_ok=True)

    def _lock_file(self, key: str) -> Path:
        return self._work / f"{key}.lock"

    @contextmanager
    def _lock(self, key: str, *, wait: bool = True) -> Iterator[None]:
        path = self._lock_file(key)
        path.parent.mkdir(parents=True, exist_ok=True)
        while True:
            with path.open("w") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
                # Whoever held it may have removed the file, and a third process made a new one: a lock
                # on a file that no longer has this name keeps nobody out.
                if _same_file(lock.fileno(), path):
                    yield
                    return


def _folders(parent: Path) -> list[Path]:
    if not parent.is_dir():
        return []
    return [path for path in parent.iterdir() if path.is_dir() and not path.name.startswith(".")]


def _same_file(handle: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(handle), path.stat())
    except FileNotFoundError:
        return False
