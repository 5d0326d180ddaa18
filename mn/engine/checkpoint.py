"""Checkpoints of an unfinished run: written whole, the one before kept, a damaged one passed over."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import torch

from mn.files import replacing


class Checkpoints:
    """The newest two checkpoints in a folder.

    Example:
        >>> import tempfile
        >>> checkpoints = Checkpoints(Path(tempfile.mkdtemp()))
        >>> checkpoints.save({"epoch": 3})
        >>> checkpoints.load(torch.device("cpu"))
        {'epoch': 3}
    """

    def __init__(self, folder: Path) -> None:
        self._newest = folder / "checkpoint.pt"
        self._previous = folder / "checkpoint-previous.pt"

    def save(self, state: dict[str, Any]) -> None:
        """Write the state; what was the newest checkpoint becomes the previous one."""
        with replacing(self._newest) as aside:
            torch.save(state, aside)
            if self._newest.exists():
                self._newest.replace(self._previous)

    def load(self, device: torch.device) -> dict[str, Any] | None:
        """The newest readable state, or None. Nothing but tensors and plain data is unpickled."""
        for path in (self._newest, self._previous):
            try:
                state: dict[str, Any] = torch.load(path, map_location=device, weights_only=True)
            except (OSError, RuntimeError, EOFError, pickle.UnpicklingError):
                continue  # absent, or cut short by a crash of the machine: the one before serves
            return state
        return None
