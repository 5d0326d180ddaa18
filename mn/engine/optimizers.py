"""Optimisers with the paper's parameter groups."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from mn.engine.config import TrainSettings
from mn.nn import Alpha, CosineHead, Dictionary, DotHead, IFiLM


def build_optimizer(model: nn.Module, settings: TrainSettings) -> torch.optim.Optimizer:
    """The optimiser, with no weight decay on the dictionaries, α and the linear heads.

    Keys, values, their metric and α have learning rates of their own, given as multiples of ``lr``.
    """
    lr, decay = settings.lr, settings.weight_decay
    of_keys = lr * settings.dictionary_lr

    def inside(*types: type[nn.Module], name: str = "") -> list[nn.Parameter]:
        """The parameters of modules of these types, those whose name ends in ``name``."""
        modules = [m for m in model.modules() if isinstance(m, types)]
        return [p for m in modules for own, p in m.named_parameters() if own.endswith(name)]

    kinds: list[tuple[list[nn.Parameter], dict[str, Any]]] = [
        # first, as the first group's lr is what is shown, and a linear head may be the whole network
        (inside(IFiLM, CosineHead, DotHead), {"weight_decay": 0.0}),
        (inside(Dictionary, name="keys"), {"lr": of_keys, "weight_decay": 0.0}),
        (inside(Dictionary, name="values"), {"lr": of_keys * settings.value_lr, "weight_decay": 0.0}),
        (inside(Dictionary, name="log_scale"), {"lr": lr * settings.metric_lr, "weight_decay": 0.0}),
        (inside(Alpha), {"lr": lr * settings.alpha_lr, "weight_decay": 0.0}),
    ]
    special: list[dict[str, Any]] = []
    taken: set[int] = set()
    for parameters, options in kinds:
        special.append({"params": parameters, **options})
        taken |= {id(p) for p in parameters}
    rest = [p for p in model.parameters() if p.requires_grad and id(p) not in taken]
    groups = [group for group in ({"params": rest}, *special) if group["params"]]
    # Fused: one kernel for all parameters, which is most of the time of a step on small models.
    if settings.optimizer == "sgd":
        return torch.optim.SGD(groups, lr, settings.momentum, weight_decay=decay, fused=True)
    if settings.optimizer == "adam":
        return torch.optim.Adam(groups, lr, weight_decay=decay, fused=True)
    return torch.optim.AdamW(groups, lr, weight_decay=decay, fused=True)
