"""Ctrl-C as a request: finish the step, save a checkpoint, then stop."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Interrupted(Exception):
    """A run was stopped on request. Its checkpoint is saved; the next call goes on from there."""


class Interrupt:
    """Whether a stop was asked for. A second Ctrl-C does not wait for the step to end."""

    def __init__(self) -> None:
        self.requested = False

    def _handle(self, signum: int, _frame: FrameType | None) -> None:
        if self.requested and signum == signal.SIGINT:
            raise KeyboardInterrupt
        self.requested = True


@contextmanager
def interruptible() -> Iterator[Interrupt]:
    """Turn SIGINT and SIGTERM into a request while the block runs. Other threads cannot: no-op there."""
    interrupt = Interrupt()
    if threading.current_thread() is not threading.main_thread():
        yield interrupt
        return
    signals = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.signal(number, interrupt._handle) for number in signals}
    try:
        yield interrupt
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
