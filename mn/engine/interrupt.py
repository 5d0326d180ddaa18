"""Ctrl-C as a request: finish the step, save a checkpoint, then stop.

The request is a file, so that it reaches every process that works on a stage's runs.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from uuid import uuid4


class Interrupted(Exception):
    """A run was stopped on request. Its checkpoint is saved; the next call goes on from there."""


@dataclass(frozen=True)
class StopRequest:
    """Whether a stop was asked for."""

    file: Path

    @property
    def made(self) -> bool:
        return self.file.exists()


@contextmanager
def stop_on_signal(folder: Path) -> Iterator[StopRequest]:
    """Turn SIGINT and SIGTERM into a request while the block runs; a second Ctrl-C stops at once.

    Only the main thread can handle signals: elsewhere the request is never made.
    """
    folder.mkdir(parents=True, exist_ok=True)
    request = StopRequest(folder / f"stop-{uuid4().hex}")
    if threading.current_thread() is not threading.main_thread():
        yield request
        return

    def handle(signum: int, _frame: FrameType | None) -> None:
        if request.made and signum == signal.SIGINT:
            raise KeyboardInterrupt
        request.file.touch()

    signals = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.signal(number, handle) for number in signals}
    try:
        yield request
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        request.file.unlink(missing_ok=True)


@contextmanager
def ignoring_interrupts() -> Iterator[None]:
    """Start processes in this block that Ctrl-C does not reach: they inherit that it is ignored."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
