"""Which entries adapted a prediction, and by how much."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor


class Explanation(NamedTuple):
    """Per instance, the ``k`` entries with the most weight, heaviest first.

    ``moved`` is exact: the winning logit minus what it would be were the entry's weight zero and
    the others unchanged. For one step of the dot head these parts add up to the whole adaptation;
    where entries act through a norm or a non-linearity, no split into parts does.
    """

    entries: Tensor  # (B, k) rows of the dictionary
    weights: Tensor  # (B, k) ω, of all S entries summing to 1
    classes: Tensor | None  # (B, k) the most probable class of each entry; None for regression
    values: Tensor  # (B, k, C) the entries' class probabilities, or targets (B, k, out)
    moved: Tensor  # (B, k) by how much each moved the winning logit; (B, k, out) for regression
    winner: Tensor | None  # (B,) the predicted class; None for regression
    before: Tensor  # (B,) the winning class's logit before adaptation, or the outputs (B, out)
    after: Tensor  # the same after adaptation


def explain(
    outputs: Callable[[Tensor], Tensor],
    unadapted: Tensor,
    attention: Tensor,
    values: Tensor,
    k: int,
    *,
    classes: bool,
) -> Explanation:
    """Explain by ``outputs(attention)``, which gives the adapted outputs for any weights."""
    S = attention.shape[1]
    if not 1 <= k <= S:
        raise ValueError(f"k: expected from 1 to the {S} entries of the dictionary, got {k}")
    weights, entries = attention.topk(k, dim=1)
    after = outputs(attention)
    winner = after.argmax(1) if classes else None

    def of_interest(out: Tensor) -> Tensor:
        return out if winner is None else out.gather(1, winner.unsqueeze(1)).squeeze(1)

    moved = []
    for entry in entries.unbind(1):
        without = attention.scatter(1, entry.unsqueeze(1), 0.0)
        moved.append(of_interest(after) - of_interest(outputs(without)))
    return Explanation(
        entries=entries,
        weights=weights,
        classes=values.argmax(1)[entries] if classes else None,
        values=values[entries],
        moved=torch.stack(moved, 1),
        winner=winner,
        before=of_interest(unadapted),
        after=of_interest(after),
    )
