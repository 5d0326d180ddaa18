"""What inference can keep between batches, and when it has to let go of it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, NamedTuple

import torch
from torch import Tensor

from mn.functional import _attention
from mn.nn.dictionary import Dictionary
from mn.nn.heads import Head


class Neighborhood:
    """Entries and head as adaptation sees them: computed on first use, then kept.

    Args:
        keys: of the entries in use.
        values: of the same.
        dictionary: they are of, for how they are compared.
        head: the network they adapt.
        constant: compute outside of autograd, for use in any later batch.
    """

    def __init__(
        self, keys: Tensor, values: Tensor, dictionary: Dictionary, head: Head, *, constant: bool
    ) -> None:
        self.keys, self.values, self.similarity = keys, values, dictionary.similarity
        # Whether the attention's similarities are the keys' own cosines, which a cosine head has use for.
        self.of_keys = self.similarity == "cosine" and dictionary.log_scale is None
        self._measured = dictionary.measured
        self._head, self._constant = head, constant
        self._known: dict[str, Any] = {}

    @property
    def index(self) -> Tensor:
        """The keys, ready for the attention."""
        indexed: Tensor = self._once(
            "index", lambda: _attention.index(self._measured(self.keys), self.similarity)
        )
        return indexed

    @property
    def near(self) -> Any:
        """What the head needs of every entry: for the cosine head E, for an MLP a and δ."""
        unit_keys = self.index if self.of_keys else None
        return self._once("near", lambda: self._head.neighbors(self.keys, self.values, unit_keys=unit_keys))

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


class _Made(NamedTuple):
    settings: tuple[object, ...]
    tensors: list[Tensor]  # the very ones, which what was made may hold
    copies: list[Tensor]  # of what was in them
    neighborhood: Neighborhood

    def holds(self, settings: tuple[object, ...], tensors: list[Tensor]) -> bool:
        return (
            self.settings == settings
            and len(self.tensors) == len(tensors)
            and all(old is new for old, new in zip(self.tensors, tensors, strict=True))
            and all(_equal(copy, new) for copy, new in zip(self.copies, tensors, strict=True))
        )


class Kept:
    """The last :class:`Neighborhood`, for as long as what it was made of stays the same.

    "The same" is checked by content, against a copy. Version counters and addresses would be
    cheaper, but neither sees a write through ``.data``, a NumPy view or another process, and the
    comparison reads a few megabytes next to a forward pass.
    """

    def __init__(self) -> None:
        self._made: _Made | None = None

    def get(
        self, settings: tuple[object, ...], tensors: list[Tensor], make: Callable[[], Neighborhood]
    ) -> Neighborhood:
        """What was kept if settings and tensors are what they were, or a new one."""
        made = self._made
        if made is None or not made.holds(settings, tensors):
            with torch.inference_mode(False), torch.no_grad():
                copies = [t.detach().clone() for t in tensors]
                self._made = made = _Made(settings, tensors, copies, make())
        return made.neighborhood

    def drop(self) -> None:
        """Free the memory."""
        self._made = None

    # neither a copy nor a pickle of a model takes it along: it is made again on first use
    def __deepcopy__(self, memo: dict[int, Any]) -> Kept:
        return Kept()

    def __reduce__(self) -> tuple[type[Kept], tuple[()]]:
        return Kept, ()


def _equal(a: Tensor, b: Tensor) -> bool:
    same_kind = a.shape == b.shape and a.dtype == b.dtype and a.device == b.device
    return same_kind and torch.equal(a, b)
