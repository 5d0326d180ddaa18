"""The training loop: any method that has a network, for classification and regression.

A run can be stopped at any step and goes on from its checkpoint to the very same weights: the order of the
rows and what is done to them depends on (seed, epoch, place), every random number of a step on (seed,
iteration, rank), and everything else that moves is in :class:`_State` and the learner.
"""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from mn.data.augment import Policy
from mn.data.feed import as_input, epoch_order
from mn.data.loader import Batch, Loader
from mn.data.split import SplitData
from mn.engine.batchnorm import ROWS, recompute_statistics
from mn.engine.build import ModelShape, build_generator, build_model
from mn.engine.checkpoint import Checkpoints
from mn.engine.config import ExecutionSettings, RunConfig, TrainSettings
from mn.engine.devices import resolve_device
from mn.engine.distributed import Ranks, share, sum_over_ranks
from mn.engine.event import Event
from mn.engine.interrupt import Interrupted, StopRequest
from mn.engine.learners import make_learner
from mn.engine.modelfile import save_model
from mn.engine.syncbatchnorm import synchronise_batchnorm
from mn.engine.validate import validate
from mn.errors import MNError
from mn.nn import Dictionary, MetaNeighborhoods

WEIGHTS = "weights.safetensors"
HISTORY = "history.json"
SNAPSHOTS = "snapshots.safetensors"

# Steps between looks at the losses on a GPU: reading each would make it wait for the CPU at every step.
_LOOK_EVERY = 20


@dataclass
class _State:
    """Where a run stands. Plain data and tensors only: this is what a checkpoint holds."""

    epoch: int = 0
    step: int = 0  # within the epoch
    iteration: int = 0  # over all epochs
    loss: float = 0.0  # summed over the epoch's rows so far
    last_loss: float = math.nan  # of the last batch
    seconds: float = 0.0
    epoch_seconds: float = 0.0
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
    ranks: Ranks,
) -> float:
    """Train one run, going on from a checkpoint in ``work`` if there is one.

    Writes weights, history and, if any are asked for, snapshots to ``output``; of several processes the
    main one does.

    Returns:
        The seconds of training in all, those before an interruption included.

    Raises:
        Interrupted: a stop was asked for; the checkpoint is saved.
        MNError: the loss is no longer finite, or the memory does not suffice. The last checkpoint stays.
    """
    trained = train(
        config,
        data,
        execution=execution,
        progress=progress,
        stop=stop,
        ranks=ranks,
        checkpoints=Checkpoints(work),
    )
    if ranks.main:
        save_model(output / WEIGHTS, trained.weights, config, ModelShape.of(data), data.standardisation)
        (output / HISTORY).write_text(json.dumps(trained.history, indent=1), encoding="utf-8")
        if trained.snapshots:
            save_file(trained.snapshots, output / SNAPSHOTS)
    return trained.seconds


@dataclass(frozen=True)
class Trained:
    """What training gives."""

    weights: dict[str, Tensor]  # of the best epoch, or the last
    history: list[dict[str, float]]  # a row of figures an epoch
    snapshots: dict[str, Tensor]  # by "<iteration>/<name>"
    seconds: float


def train(
    config: RunConfig,
    data: SplitData,
    *,
    execution: ExecutionSettings,
    progress: Callable[[Event], None],
    stop: StopRequest | None = None,
    ranks: Ranks = Ranks(),  # noqa: B008 (frozen)
    checkpoints: Checkpoints | None = None,
    remedy: str = "lower train.lr or set train.clip",
) -> Trained:
    """Train one run; with ``checkpoints``, going on from the last. Raises as :func:`fit`.

    Args:
        remedy: what to do about a loss that is no longer finite, in the caller's words.
    """
    device = resolve_device(execution.device)
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []), _memory_named(config):
        trainer = _Trainer(config, data, checkpoints, execution, device, ranks, remedy)
        trainer.train(execution.checkpoint_seconds, progress, stop)
    state = trainer.state
    weights = state.best if trainer.settings.keep == "best" else _copy(trainer.model)
    return Trained(weights, state.history, state.snapshots, state.seconds)


class _Trainer:
    def __init__(
        self,
        config: RunConfig,
        data: SplitData,
        checkpoints: Checkpoints | None,
        execution: ExecutionSettings,
        device: torch.device,
        ranks: Ranks,
        remedy: str,
    ) -> None:
        assert config.training is not None
        self.config = config
        self.remedy = remedy
        self.settings: TrainSettings = config.training
        self.data = data
        self.device = device
        self.ranks = ranks
        self.checkpoints = checkpoints
        images = data.kind == "images"
        self.channels_last = images if execution.channels_last == "auto" else execution.channels_last
        torch.manual_seed(config.seed)  # every process draws the same weights
        shape = ModelShape.of(data)
        self.model = build_model(config, shape, value_range=_target_range(data))
        if config.dictionary and config.dictionary.init == "rows":
            self._fill_dictionary()
        generator = build_generator(config, shape)
        for network in filter(None, (self.model, generator)):
            self._place(network, execution)
        self.learner = make_learner(config, self.model, generator, device, self._autocast, ranks)
        self.dictionaries = [m for m in self.model.modules() if isinstance(m, Dictionary)]
        for dictionary in self.dictionaries:
            dictionary.generator = torch.Generator()
        self.loader = Loader(
            data.train,
            batch_size=self.settings.batch_size,
            seed=config.seed,
            device=device,
            policy=_policy(self.settings.augment, data.flip) if images else None,
            workers=_workers(execution, device),
        )
        self.look_every = 1 if device.type == "cpu" else _LOOK_EVERY
        self.unseen: list[Tensor] = []  # losses of steps that nobody has looked at yet, (loss, rows)
        self.state = _State()
        saved = checkpoints.load(device) if checkpoints else None
        if saved:
            self.learner.load_state_dict(saved["learner"])
            self.state = _State(**saved["state"])
        else:
            self._snapshot()

    def _fill_dictionary(self) -> None:
        assert isinstance(self.model, MetaNeighborhoods)
        part = self.data.train
        if len(part) < 2:
            raise MNError(f"{self.config.dataset}: init = rows needs two training rows; it has {len(part)}")
        # Drawn apart from the weights, which are then those of the same network without a dictionary.
        generator = torch.Generator().manual_seed(_step_seed(self.config.seed, -1, 0))
        self.model.dictionary.fill(part.inputs(slice(None)), part.y, generator=generator)

    def _place(self, network: nn.Module, execution: ExecutionSettings) -> None:
        """Put a network on its device, in the form in which it is trained."""
        if self.ranks.world > 1:
            synchronise_batchnorm(network)
        network.to(self.device)
        backbone = network.get_submodule("backbone")
        if self.channels_last:
            # convolutions alone have four dimensions to reorder
            backbone.to(memory_format=torch.channels_last)
        compiled = self.device.type == "cuda" if execution.compile == "auto" else execution.compile
        if compiled and self.data.kind == "images":
            backbone.compile()

    def train(
        self, checkpoint_seconds: float, progress: Callable[[Event], None], stop: StopRequest | None
    ) -> None:
        state, settings = self.state, self.settings
        name = self.config.name
        progress(Event(name, "start", state.epoch, settings.epochs, history=list(state.history)))
        last_save = last_tick = time.monotonic()
        while state.epoch < settings.epochs and not self._out_of_patience():
            self._schedule()
            for batch in self.loader.epoch(state.epoch, start=state.step):
                self._step(batch)
                now = time.monotonic()
                state.seconds += now - last_tick
                state.epoch_seconds += now - last_tick
                last_tick = now
                if len(self.unseen) < self.look_every:
                    continue
                asked = stop is not None and stop.made
                stopping, saving = self._agree(asked, now - last_save >= checkpoint_seconds)
                if stopping or saving:
                    self._save()
                    last_save = now
                if stopping:
                    raise Interrupted(
                        f"{name} stopped in epoch {state.epoch + 1}; the same command goes on from there"
                    )
            self._look()
            self._end_epoch()
            last_tick = time.monotonic()
            row = state.history[-1]
            progress(Event(name, "epoch", state.epoch, settings.epochs, _shown(row), figures=row))

    def _step(self, batch: Batch) -> None:
        state, count = self.state, len(batch.y)
        mine = share(count, self.ranks)
        torch.manual_seed(_step_seed(self.config.seed, state.iteration, self.ranks.rank))
        for dictionary in self.dictionaries:
            assert dictionary.generator is not None
            dictionary.generator.manual_seed(_step_seed(self.config.seed, state.iteration, 0))
            dictionary.share = (mine.start, count)
        batch = batch.part(mine)
        loss = self.learner.step(batch._replace(x=self._input(batch.x)), count)
        self.unseen.append(torch.stack([loss.double(), torch.tensor(float(count), device=loss.device)]))
        state.step += 1
        state.iteration += 1
        self._snapshot()

    def _agree(self, *flags: bool) -> list[bool]:
        """Look at the new losses; a flag is up for all processes if it is up for one."""
        told = self._look(torch.tensor(flags, dtype=torch.float64))
        return [bool(flag) for flag in told]

    def _look(self, flags: Tensor | None = None) -> list[float]:
        """Take the new losses into account, and stop if one is not a number.

        One message carries the losses and ``flags`` of all processes: on several, a message costs more
        than what is in it.
        """
        state = self.state
        flags = torch.zeros(0, dtype=torch.float64) if flags is None else flags
        if not self.unseen:
            return flags.tolist()
        seen = torch.stack(self.unseen)  # (steps, 2)
        losses = sum_over_ranks(torch.cat([seen[:, 0], flags.to(seen.device)])).tolist()
        first = state.iteration - len(seen)
        for place, (loss, rows) in enumerate(zip(losses, seen[:, 1].tolist(), strict=False)):
            if not math.isfinite(loss):
                raise MNError(self._diverged(loss / rows, first + place))
            state.loss += loss
            state.last_loss = loss / rows
        self.unseen.clear()
        return losses[len(seen) :]

    def _diverged(self, loss: float, iteration: int) -> str:
        state = self.state
        figures = [] if math.isnan(state.last_loss) else [f"loss {state.last_loss:.4g}"]
        if state.history:
            row = state.history[-1]
            figures.append(f"after epoch {int(row['epoch'])}: {_shown(row)}")
        return (
            f"{self.config.dataset} {self.config.name}: the loss became {loss} at iteration {iteration} "
            f"(epoch {state.epoch + 1}) with lr {self.learner.lr:g}; the last finite values: "
            f"{', '.join(figures) or 'none'}; {self.remedy}"
        )

    def _end_epoch(self) -> None:
        state, settings = self.state, self.settings
        if settings.batchnorm == "recomputed":
            self._recompute_batchnorm()
        rows = len(self.data.train)
        figures = {
            "epoch": state.epoch + 1,
            "iteration": state.iteration,
            "lr": self.learner.lr,
            "train_loss": state.loss / rows,
            **validate(self.model, self.data, self.device, self.ranks, self._autocast, self._input),
            "rows_per_second": rows / max(state.epoch_seconds, 1e-9),
        }
        state.history.append(figures)
        state.epoch += 1
        state.step = 0
        state.loss = state.epoch_seconds = 0.0
        score = self._score(figures)
        if not state.best_score or score < state.best_score:
            state.best_score = score
            state.best_epoch = state.epoch
            state.best = _copy(self.model)

    def _recompute_batchnorm(self) -> None:
        """On training rows as they are, without augmentation: as those that are evaluated."""
        part, size = self.data.train, self.settings.batch_size
        rows = epoch_order(len(part), seed=self.config.seed, epoch=self.state.epoch)[:ROWS]
        backbone = self.model.get_submodule("backbone")

        def inputs() -> Iterator[Tensor]:
            for chosen in rows.split(size):
                yield self._input(part.inputs(chosen[share(len(chosen), self.ranks)]).to(self.device))

        def forward(x: Tensor) -> None:
            with self._autocast():
                backbone(x)

        recompute_statistics(backbone, inputs(), forward)

    def _input(self, x: Tensor) -> Tensor:
        x = as_input(x)
        return x.contiguous(memory_format=torch.channels_last) if self.channels_last and x.ndim == 4 else x

    def _score(self, figures: dict[str, float]) -> list[float]:
        """What the best epoch has the least of: errors first, and of equally many the lower loss."""
        if self.data.task == "classification":
            return [-figures["val_accuracy"], figures["val_loss"]]
        return [figures["val_loss"]]

    def _out_of_patience(self) -> bool:
        patience = self.settings.patience
        return bool(patience) and self.state.epoch - self.state.best_epoch >= patience

    def _schedule(self) -> None:
        """lr falls at each drop, and with it what AdamW takes off the weights (lr × decay)."""
        drops = sum(self.state.epoch >= drop for drop in self.settings.lr_drops)
        self.learner.schedule(self.settings.lr_factor**drops)

    def _snapshot(self) -> None:
        iteration = self.state.iteration
        if iteration in self.settings.snapshots:
            for name, tensor in _copy(self.model).items():
                self.state.snapshots[f"{iteration}/{name}"] = tensor

    def _autocast(self) -> torch.autocast:
        enabled = self.settings.precision == "bf16"
        return torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=enabled)

    def _save(self) -> None:
        if self.ranks.main and self.checkpoints:
            self.checkpoints.save({"state": vars(self.state), "learner": self.learner.state_dict()})


@contextmanager
def _memory_named(config: RunConfig) -> Iterator[None]:
    """Turn "out of memory" into an error that says which settings to lower."""
    try:
        yield
    except (torch.OutOfMemoryError, MemoryError) as error:
        raise MNError(_too_large(config, error)) from None
    except RuntimeError as error:
        if "can't allocate memory" not in str(error) and "not enough memory" not in str(error):
            raise
        raise MNError(_too_large(config, error)) from None


def _too_large(config: RunConfig, error: BaseException) -> str:
    assert config.training is not None
    settings = [f"train.batch_size (now {config.training.batch_size})"]
    if config.dictionary:
        settings.append(f"model.S (now {config.dictionary.S})")
    what = str(error).splitlines()[0] if str(error) else "allocation failed"
    return (
        f"{config.dataset} {config.name}: out of memory ({what[:120]}); lower {' or '.join(settings)}, "
        "or train.jobs if runs go side by side"
    )


def _policy(name: str, flip: bool) -> Policy | None:
    if name == "none":
        return None
    return Policy(flip=flip) if name == "paper" else Policy(flip=flip, autoaugment=False, cutout=0)


def _workers(execution: ExecutionSettings, device: torch.device) -> int:
    if execution.workers != "auto":
        return execution.workers
    return 0 if device.type == "cpu" else 2


def _step_seed(seed: int, iteration: int, rank: int) -> int:
    digest = hashlib.blake2b(f"step {seed} {iteration} {rank}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1


def _shown(row: dict[str, float]) -> str:
    shown = ("val_accuracy", "val_loss", "train_loss")
    return "  ".join(f"{key} {row[key]:.4g}" for key in shown if key in row)


def _copy(model: nn.Module) -> dict[str, Tensor]:
    # contiguous: a file has one layout, and channels-last is the trainer's affair
    return {
        name: tensor.detach().cpu().clone(memory_format=torch.contiguous_format)
        for name, tensor in model.state_dict().items()
    }


def _target_range(data: SplitData) -> tuple[float, float]:
    if data.task == "classification":
        return (-1.0, 1.0)
    return (data.train.y.min().item(), data.train.y.max().item())
