"""The training loop: any method that has a network, for classification and regression.

A run can be stopped at any step and goes on from its checkpoint to the very same weights: the order of the
rows depends on (seed, epoch) alone, and everything else that moves is in :class:`_State`.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn import functional as F

from mn.data.feed import as_input, batches, epoch_order
from mn.data.split import Part, SplitData
from mn.engine.build import ModelShape, build_model, build_optimizer
from mn.engine.checkpoint import Checkpoints
from mn.engine.config import ExecutionSettings, RunConfig, TrainSettings
from mn.engine.devices import resolve_device
from mn.engine.event import Event
from mn.engine.interrupt import Interrupted, StopRequest
from mn.engine.modelfile import save_model
from mn.errors import MNError
from mn.nn import MetaNeighborhoods, Vanilla

WEIGHTS = "weights.safetensors"
HISTORY = "history.json"
SNAPSHOTS = "snapshots.safetensors"

Model = MetaNeighborhoods | Vanilla


@dataclass
class _State:
    """Where a run stands. Plain data and tensors only: this is what a checkpoint holds."""

    epoch: int = 0
    step: int = 0  # within the epoch
    iteration: int = 0  # over all epochs
    loss: float = 0.0  # summed over the epoch's rows so far
    seconds: float = 0.0
    best_epoch: int = 0
    best_score: list[float] = field(default_factory=list)
    best: dict[str, Tensor] = field(default_factory=dict)
    history: list[dict[str, float]] = field(default_factory=list)
    snapshots: dict[str, Tensor] = field(default_factory=dict)


def fit(
    config: RunConfig,
    data: SplitData,
    work: Path,
    output: Path,
    *,
    execution: ExecutionSettings,
    progress: Callable[[Event], None],
    stop: StopRequest,
) -> float:
    """Train one run, going on from a checkpoint in ``work`` if there is one.

    Writes weights, history and, if any are asked for, snapshots to ``output``.

    Returns:
        The seconds of training in all, those before an interruption included.

    Raises:
        Interrupted: a stop was asked for; the checkpoint is saved.
        MNError: the loss is no longer finite.
    """
    device = resolve_device(execution.device)
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        trainer = _Trainer(config, data, Checkpoints(work), device)
        trainer.train(execution.checkpoint_seconds, progress, stop)
    state = trainer.state
    weights = state.best if trainer.settings.keep == "best" else _copy(trainer.model)
    save_model(output / WEIGHTS, weights, config, ModelShape.of(data), data.standardisation)
    (output / HISTORY).write_text(json.dumps(state.history, indent=1), encoding="utf-8")
    if state.snapshots:
        save_file(state.snapshots, output / SNAPSHOTS)
    return state.seconds


class _Trainer:
    def __init__(
        self, config: RunConfig, data: SplitData, checkpoints: Checkpoints, device: torch.device
    ) -> None:
        assert config.training is not None
        self.config = config
        self.settings: TrainSettings = config.training
        self.data = data
        self.device = device
        self.checkpoints = checkpoints
        torch.manual_seed(config.seed)
        self.model: Model = build_model(config, ModelShape.of(data), value_range=_target_range(data)).to(
            device
        )
        self.optimizer = build_optimizer(self.model, self.settings)
        self.state = _State()
        self.train_part = Part(data.train.x.to(device), data.train.y.to(device))
        saved = checkpoints.load(device)
        if saved:
            self._restore(saved)
        else:
            self._snapshot()

    def train(self, checkpoint_seconds: float, progress: Callable[[Event], None], stop: StopRequest) -> None:
        state, settings = self.state, self.settings
        name = self.config.name
        progress(Event(name, "start", state.epoch, settings.epochs, history=list(state.history)))
        last_save = last_tick = time.monotonic()
        while state.epoch < settings.epochs and not self._out_of_patience():
            order = epoch_order(len(self.train_part), seed=self.config.seed, epoch=state.epoch)
            steps = math.ceil(len(order) / settings.batch_size)
            self._schedule()
            while state.step < steps:
                start = state.step * settings.batch_size
                self._step(order[start : start + settings.batch_size].to(self.device))
                now = time.monotonic()
                state.seconds += now - last_tick
                last_tick = now
                stopping = stop.made
                if stopping or now - last_save >= checkpoint_seconds:
                    self._save()
                    last_save = now
                if stopping:
                    raise Interrupted(
                        f"{self.config.name} stopped in epoch {state.epoch + 1}; "
                        "the same command goes on from there"
                    )
            self._end_epoch()
            figures = dict(state.history[-1])
            progress(Event(name, "epoch", state.epoch, settings.epochs, self._figures(), figures))

    def _step(self, rows: Tensor) -> None:
        state, settings = self.state, self.settings
        self.model.train()
        with self._autocast():
            output = self.model(as_input(self.train_part.x[rows]))
            loss = task_loss(output, self.train_part.y[rows])
        value = loss.item()
        if not math.isfinite(value):
            raise MNError(
                f"{self.config.dataset} {self.config.name}: the loss became {value} at iteration "
                f"{state.iteration} with lr {self.optimizer.param_groups[0]['lr']:g}; "
                "lower train.lr or set train.clip"
            )
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        if settings.clip:
            nn.utils.clip_grad_value_(self.model.parameters(), settings.clip)
        self.optimizer.step()
        state.loss += value * len(rows)
        state.step += 1
        state.iteration += 1
        self._snapshot()

    def _end_epoch(self) -> None:
        state = self.state
        figures = {
            "epoch": state.epoch + 1,
            "iteration": state.iteration,
            "lr": self.optimizer.param_groups[0]["lr"],
            "train_loss": state.loss / len(self.train_part),
            **self._validate(),
        }
        if isinstance(self.model, MetaNeighborhoods):
            figures["alpha"] = self.model.alpha().mean().item()
        state.history.append(figures)
        state.epoch += 1
        state.step = 0
        state.loss = 0.0
        score = self._score(figures)
        if not state.best_score or score < state.best_score:
            state.best_score = score
            state.best_epoch = state.epoch
            state.best = _copy(self.model)

    def _validate(self) -> dict[str, float]:
        """Loss (and accuracy) on the validation part; for MN also before adaptation."""
        self.model.eval()
        part, total = self.data.validation, dict[str, float]()
        with torch.inference_mode(), self._autocast():
            for x, y in batches(part, 512, self.device):
                outputs = {"val": self.model(x)}
                if isinstance(self.model, MetaNeighborhoods):
                    outputs["val_before"] = self.model.unadapted(x)
                for name, output in outputs.items():
                    key = f"{name}_loss"
                    total[key] = total.get(key, 0.0) + task_loss(output, y).item() * len(x)
                    if self.data.task == "classification":
                        key = f"{name}_accuracy"
                        correct = (output.argmax(1) == y).sum().item()
                        total[key] = total.get(key, 0.0) + 100.0 * correct
        return {key: value / len(part) for key, value in total.items()}

    def _score(self, figures: dict[str, float]) -> list[float]:
        """What the best epoch has the least of: errors first, and of equally many the lower loss."""
        if self.data.task == "classification":
            return [-figures["val_accuracy"], figures["val_loss"]]
        return [figures["val_loss"]]

    def _out_of_patience(self) -> bool:
        patience = self.settings.patience
        return bool(patience) and self.state.epoch - self.state.best_epoch >= patience

    def _schedule(self) -> None:
        """lr falls to a tenth at each drop, and with it what AdamW takes off the weights (lr × decay)."""
        drops = sum(self.state.epoch >= drop for drop in self.settings.lr_drops)
        for group in self.optimizer.param_groups:
            group["lr"] = self.settings.lr * 0.1**drops

    def _snapshot(self) -> None:
        iteration = self.state.iteration
        if iteration in self.settings.snapshots:
            for name, tensor in _copy(self.model).items():
                self.state.snapshots[f"{iteration}/{name}"] = tensor

    def _figures(self) -> str:
        shown = ("val_accuracy", "val_loss", "train_loss")
        last = self.state.history[-1]
        return "  ".join(f"{key} {last[key]:.4g}" for key in shown if key in last)

    def _autocast(self) -> torch.autocast:
        enabled = self.settings.precision == "bf16"
        return torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=enabled)

    def _save(self) -> None:
        rng = {"cpu": torch.get_rng_state()}
        if self.device.type == "cuda":
            rng["cuda"] = torch.cuda.get_rng_state(self.device)
        self.checkpoints.save(
            {
                "state": vars(self.state),
                "model": self.model.state_dict(),
                "optimizer": self.optimizer.state_dict(),
                "rng": rng,
            }
        )

    def _restore(self, saved: dict[str, Any]) -> None:
        self.model.load_state_dict(saved["model"])
        self.optimizer.load_state_dict(saved["optimizer"])
        self.state = _State(**saved["state"])
        torch.set_rng_state(saved["rng"]["cpu"].cpu())
        if "cuda" in saved["rng"]:
            torch.cuda.set_rng_state(saved["rng"]["cuda"].cpu(), self.device)


def task_loss(output: Tensor, target: Tensor) -> Tensor:
    """Mean cross entropy for integer labels ``(B,)``, mean squared error for real targets ``(B, t)``."""
    if target.dtype == torch.int64:
        return F.cross_entropy(output.float(), target)
    return F.mse_loss(output.float(), target)


def _copy(model: nn.Module) -> dict[str, Tensor]:
    return {name: tensor.detach().cpu().clone() for name, tensor in model.state_dict().items()}


def _target_range(data: SplitData) -> tuple[float, float]:
    if data.task == "classification":
        return (-1.0, 1.0)
    return (data.train.y.min().item(), data.train.y.max().item())
