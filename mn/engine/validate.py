"""A model's figures on the validation part, for MN also before adaptation and of its dictionary's use."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from mn.data.split import SplitData
from mn.engine.distributed import Ranks, share, sum_over_ranks
from mn.engine.learners import Autocast, task_loss
from mn.nn import MetaNeighborhoods
from mn.nn.dictionary import share_in_use

BATCH = 512


@torch.inference_mode()
def validate(
    model: nn.Module,
    data: SplitData,
    device: torch.device,
    ranks: Ranks,
    autocast: Autocast,
    as_input: Callable[[Tensor], Tensor],
) -> dict[str, float]:
    """Loss (and accuracy), over all processes' rows; for MN ``val_before_…``, ``alpha``, ``share_in_use``."""
    model.eval()
    part = data.validation
    adapting = model if isinstance(model, MetaNeighborhoods) else None
    names = ["val", "val_before"] if adapting else ["val"]
    sums = torch.zeros(len(names), 2, dtype=torch.float64, device=device)  # loss, right answers
    weight = torch.zeros(adapting.dictionary.size if adapting else 0, dtype=torch.float64, device=device)
    for start in range(0, len(part), BATCH):
        rows = range(start, min(start + BATCH, len(part)))
        mine = share(len(rows), ranks)
        chosen = slice(start + mine.start, start + mine.stop)
        if mine.start == mine.stop:
            continue
        x, y = as_input(part.inputs(chosen).to(device)), part.y[chosen].to(device)
        weights = None if part.weights is None else part.weights[chosen].to(device)
        with autocast():
            if adapting:
                compared = adapting.compare(x)
                outputs = [compared.after, compared.before]
                weight += compared.attention.sum(0, dtype=torch.float64)
            else:
                outputs = [model(x)]
        for place, output in enumerate(outputs):
            sums[place, 0] += task_loss(output, y, weights)
            if data.task == "classification":
                sums[place, 1] += (output.argmax(1) == y).sum()
    total = sum_over_ranks(torch.cat([sums.flatten(), weight])).cpu()
    figures: dict[str, float] = {}
    for name, (loss, right) in zip(names, total[: sums.numel()].view(-1, 2).tolist(), strict=True):
        figures[f"{name}_loss"] = loss / len(part)
        if data.task == "classification":
            figures[f"{name}_accuracy"] = 100.0 * right / len(part)
    if adapting:
        figures["alpha"] = adapting.alpha().mean().item()
        figures["share_in_use"] = share_in_use(total[sums.numel() :] / len(part))
    return figures
