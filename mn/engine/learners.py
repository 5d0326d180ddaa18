"""What one batch does to a model: one learner per way of training.

A learner owns model and optimisers. A batch may be shared out over processes: ``step`` gets this process's
rows and the size of the whole batch, and leaves every process with the same weights.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mn.baselines.maxl import LabelGenerator, MAXLNetwork, focal_loss, generator_gradients
from mn.data.loader import Batch
from mn.engine.config import MAXLSettings, RunConfig, TrainSettings
from mn.engine.distributed import Ranks, data_parallel, global_mean, sum_over_ranks
from mn.engine.optimizers import build_optimizer

Autocast = Callable[[], AbstractContextManager[Any]]


class Learner(ABC):
    """What is trained in a run.

    Attributes:
        model: what is validated and kept.
        modules: everything with weights, by name: what a checkpoint holds besides the optimisers.
        optimizers: by name.
    """

    def __init__(
        self,
        model: nn.Module,
        modules: dict[str, nn.Module],
        optimizers: dict[str, torch.optim.Optimizer],
        *,
        autocast: Autocast,
    ) -> None:
        self.model = model
        self.modules = modules
        self.optimizers = optimizers
        self.autocast = autocast
        for optimizer in optimizers.values():
            for group in optimizer.param_groups:
                group["initial_lr"] = group["lr"]

    @abstractmethod
    def step(self, batch: Batch, count: int) -> Tensor:
        """Train on a batch: ``batch`` is this process's rows of it, ``count`` how many all are.

        Returns:
            The loss summed over this process's rows, as it was before the update.
        """

    def schedule(self, factor: float) -> None:
        """Set every learning rate to ``factor`` times where it started."""
        for optimizer in self.optimizers.values():
            for group in optimizer.param_groups:
                group["lr"] = group["initial_lr"] * factor

    @property
    def lr(self) -> float:
        """The network's learning rate at present."""
        lr: float = next(iter(self.optimizers.values())).param_groups[0]["lr"]
        return lr

    def state_dict(self) -> dict[str, Any]:
        return {
            "modules": {name: module.state_dict() for name, module in self.modules.items()},
            "optimizers": {name: optimizer.state_dict() for name, optimizer in self.optimizers.items()},
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for name, module in self.modules.items():
            module.load_state_dict(state["modules"][name])
        for name, optimizer in self.optimizers.items():
            optimizer.load_state_dict(state["optimizers"][name])


class Supervised(Learner):
    """The task's loss, back-propagated: for MN through the inner step, second order."""

    def __init__(
        self,
        model: nn.Module,
        settings: TrainSettings,
        device: torch.device,
        autocast: Autocast,
        ranks: Ranks,
    ) -> None:
        optimizer = build_optimizer(model, settings)
        super().__init__(model, {"model": model}, {"model": optimizer}, autocast=autocast)
        self._network = data_parallel(model, device)
        self._clip, self._ranks = settings.clip, ranks

    def step(self, batch: Batch, count: int) -> Tensor:
        self.model.train()
        with self.autocast():
            loss = task_loss(self._network(batch.x, batch.rows), batch.y, batch.weights)
        optimizer = self.optimizers["model"]
        optimizer.zero_grad(set_to_none=True)
        global_mean(loss, count, self._ranks).backward()
        if self._clip:
            nn.utils.clip_grad_value_(self.model.parameters(), self._clip)
        optimizer.step()
        return loss.detach()


class MAXL(Learner):
    """Meta auxiliary learning (:mod:`mn.baselines.maxl`): generator and network move in turns on a batch.

    The generator has plain SGD; the look-ahead step has the network's learning rate and weight decay at the
    time. Gradients are summed over the processes by hand: those of the look-ahead do not pass through
    ``backward()``, where DistributedDataParallel would see them.
    """

    def __init__(
        self,
        network: MAXLNetwork,
        generator: LabelGenerator,
        settings: TrainSettings,
        maxl: MAXLSettings,
        autocast: Autocast,
    ) -> None:
        optimizers = {
            "model": build_optimizer(network, settings),
            "generator": torch.optim.SGD(
                generator.parameters(), maxl.generator_lr, weight_decay=maxl.generator_decay
            ),
        }
        modules = {"model": network, "generator": generator}
        super().__init__(network, modules, optimizers, autocast=autocast)
        self._network, self._generator = network, generator
        self._settings, self._maxl = settings, maxl

    def step(self, batch: Batch, count: int) -> Tensor:
        x, y = batch.x, batch.y
        network, generator = self._network.train(), self._generator.train()
        with self.autocast():
            gradients = generator_gradients(
                network,
                generator,
                x,
                y,
                rate=self.lr,
                weight_decay=self._settings.weight_decay,
                entropy_weight=self._maxl.entropy,
                form=self._maxl.lookahead,
                count=count,
                reduce=sum_over_ranks,
            )
        self._update("generator", generator, gradients)
        with self.autocast():
            with torch.no_grad():
                labels = generator(x, y)
            primary, auxiliary = network.both(x)
            loss = focal_loss(primary, y, count=count) + focal_loss(auxiliary, labels, count=count)
        parameters = [p for p in network.parameters() if p.requires_grad]
        self._update("model", network, torch.autograd.grad(loss, parameters))
        return loss.detach() * count

    def _update(self, name: str, module: nn.Module, gradients: Sequence[Tensor]) -> None:
        """Sum the processes' shares of the gradients, as one message, and take the optimiser's step."""
        parameters = [p for p in module.parameters() if p.requires_grad]
        flat = sum_over_ranks(torch.cat([gradient.flatten() for gradient in gradients]))
        if self._settings.clip:
            flat = flat.clamp(-self._settings.clip, self._settings.clip)
        for parameter, gradient in zip(parameters, flat.split([p.numel() for p in parameters]), strict=True):
            # In the parameter's own layout (channels last): fused optimisers pair elements as they lie.
            parameter.grad = torch.empty_like(parameter).copy_(gradient.view_as(parameter))
        self.optimizers[name].step()


def make_learner(
    config: RunConfig,
    model: nn.Module,
    generator: nn.Module | None,
    device: torch.device,
    autocast: Autocast,
    ranks: Ranks,
) -> Learner:
    """The learner of a run's method; ``generator`` is MAXL's label generator."""
    assert config.training is not None
    if config.maxl is not None:
        assert isinstance(model, MAXLNetwork)
        assert isinstance(generator, LabelGenerator)
        return MAXL(model, generator, config.training, config.maxl, autocast)
    return Supervised(model, config.training, device, autocast, ranks)


def task_loss(output: Tensor, target: Tensor, weights: Tensor | None = None) -> Tensor:
    """Summed over rows: cross entropy for labels ``(B,)``, squared error for targets ``(B, t)``.

    The squared error is averaged over the targets, as in the inner loss. ``weights (B,)`` multiply
    each row's.
    """
    if target.dtype == torch.int64:
        if weights is None:
            return F.cross_entropy(output.float(), target, reduction="sum")
        return weights @ F.cross_entropy(output.float(), target, reduction="none")
    if weights is None:
        return F.mse_loss(output.float(), target, reduction="sum") / target.shape[1]
    return weights @ (output.float() - target).square().mean(1)
