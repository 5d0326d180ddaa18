"""What inference can keep between batches, and when it has to let go of it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor

from mn import _attention
from mn.nn.dictionary import Dictionary
from mn.nn.heads import Head


class Neighborhood:
    """Dictionary and head as adaptation sees them: computed on first use, then kept.

    Args:
        dictionary: keys and values.
        head: the network they adapt.
        constant: compute outside of autograd, for use in any later batch.
    """

    def __init__(self, dictionary: Dictionary, head: Head, *, constant: bool) -> None:
        self._dictionary, self._head, self._constant = dictionary, head, constant
        self._known: dict[str, Any] = {}

    @property
    def index(self) -> Tensor:
        """The keys, ready for the attention."""
        keys, similarity = self._dictionary.keys, self._dictionary.similarity
        return self._once("index", lambda: _attention.index(keys, similarity))  # type: ignore[no-any-return]

    @property
    def near(self) -> Any:
        """What the head needs of every entry: for the cosine head E, for an MLP a and δ."""
        of = self._dictionary
        return self._once("near", lambda: self._head.neighbors(of.keys, of.values))

    @property
    def bounds(self) -> Any:
        """What the head needs besides to decide labels."""
        return self._once("bounds", lambda: self._head.bounds(self.near))

    def _once(self, name: str, compute: Callable[[], Any]) -> Any:
        if name not in self._known:
            with ExitStack() as stack:
                if self._constant:
                    # made in inference mode, it could not be used outside of it later
                    stack.enter_context(torch.inference_mode(False))
                    stack.enter_context(torch.no_grad())
                self._known[name] = compute()
        return self._known[name]


class Kept:
    """The last :class:`Neighborhood`, for as long as what it was made of stays the same.

    "The same" is checked by content, against a copy. Version counters and addresses would be
    cheaper, but neither sees a write through ``.data``, a NumPy view or another process, and the
    comparison reads a few megabytes next to a forward pass.
    """

    def __init__(self) -> None:
        self._kept: tuple[list[Tensor], Neighborhood] | None = None

    def get(self, tensors: list[Tensor], make: Callable[[], Neighborhood]) -> Neighborhood:
        """What was kept if ``tensors`` are what they were, or a new one."""
        kept = self._kept
        if kept is None or not _equal(kept[0], tensors):
            with torch.inference_mode(False):
                kept = [t.detach().clone() for t in tensors], make()
            self._kept = kept
        return kept[1]

    def drop(self) -> None:
        """Free the memory."""
        self._kept = None

    # neither a copy nor a pickle of a model takes it along: it is made again on first use
    def __deepcopy__(self, memo: dict[int, Any]) -> Kept:
        return Kept()

    def __reduce__(self) -> tuple[type[Kept], tuple[()]]:
        return Kept, ()


def _equal(old: list[Tensor], new: list[Tensor]) -> bool:
    return len(old) == len(new) and all(
        a.shape == b.shape and a.dtype == b.dtype and a.device == b.device and torch.equal(a, b)
        for a, b in zip(old, new, strict=True)
    )
