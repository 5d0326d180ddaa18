"""Several processes (ranks) that train one model on shares of every batch, started by ``torchrun``.

The unit is the *global batch*: each rank takes a :func:`share` of its rows, BatchNorm uses the statistics of
all of them (:mod:`mn.engine.syncbatchnorm`) and gradients are those of the mean loss over all of them, so
that N processes compute what one process does with the same batches. In a single process every function here
is the identity or does nothing: the caller needs no second path.

Every rank must make the same calls in the same order, also with an empty share: a call that one rank leaves
out makes the others wait for it. Whatever decides the way (a stop, a loss that is not finite, the best epoch)
must therefore be decided from :func:`any_rank`, :func:`sum_figures` or :func:`broadcast_object`.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from mn.errors import MNError

Object = TypeVar("Object")

VARIABLES = ("RANK", "WORLD_SIZE", "LOCAL_RANK")

# How long a rank waits for the others. torchrun ends them all as soon as one has died; this is for one that
# lives but no longer answers. Long enough for rank 0 to write a checkpoint to a slow disk meanwhile.
TIMEOUT = timedelta(minutes=10)


@dataclass(frozen=True)
class Ranks:
    """Which of the processes this one is.

    Args:
        rank: its number among all.
        world: how many there are.
        local_rank: its number among those of this machine, which is that of its CUDA device.
    """

    rank: int = 0
    world: int = 1
    local_rank: int = 0

    @property
    def main(self) -> bool:
        """Whether this is the one that writes files and shows progress."""
        return self.rank == 0


def current_ranks() -> Ranks:
    """What ``torchrun`` says in the environment; a single process where it says nothing."""
    missing = [name for name in VARIABLES if name not in os.environ]
    if len(missing) == len(VARIABLES):
        return Ranks()
    if missing:
        raise MNError(
            f"of {', '.join(VARIABLES)} the environment has no {' and no '.join(missing)}: "
            "start with torchrun, which sets them all, or unset the others"
        )
    try:
        rank, world, local_rank = (int(os.environ[name]) for name in VARIABLES)
    except ValueError:
        rank, world, local_rank = -1, 0, 0
    if not 0 <= rank < world or local_rank < 0:
        values = ", ".join(f"{name}={os.environ[name]}" for name in VARIABLES)
        raise MNError(
            f"expected 0 <= RANK < WORLD_SIZE in the environment, got {values}: start with torchrun"
        )
    return Ranks(rank, world, local_rank)


@contextmanager
def process_group(device: torch.device, *, timeout: timedelta = TIMEOUT) -> Iterator[Ranks]:
    """Join the other ranks for the length of the block: gloo on a CPU, nccl on CUDA; alone, nothing.

    On CUDA the device of the local rank becomes the current one, so that ``torch.device("cuda")`` is it.

    Raises:
        MNError: the ranks did not find each other, or lost each other later (one of them failed or died).
    """
    ranks = current_ranks()
    if ranks.world == 1:
        yield ranks
        return
    _initialise(device, ranks, timeout)
    try:
        yield ranks
    except BaseException as error:
        # not only destroyed: that may wait for what other ranks have yet to answer
        world = dist.group.WORLD
        if world is not None:
            world.abort()
        if _lost_contact(error):
            raise MNError(
                f"rank {ranks.rank} of {ranks.world} lost contact with the other ranks: see the error of the "
                "first that failed"
            ) from error
        raise
    finally:
        dist.destroy_process_group()


def share(size: int, ranks: Ranks) -> slice:
    """The rows of a global batch of ``size`` that this rank takes: contiguous, as even as possible.

    The shares in rank order are the batch. A batch smaller than ``world`` leaves some of them empty.

    Example:
        >>> [list(range(5)[share(5, Ranks(rank, 2, rank))]) for rank in range(2)]
        [[0, 1], [2, 3, 4]]
    """
    return slice(size * ranks.rank // ranks.world, size * (ranks.rank + 1) // ranks.world)


def in_group() -> bool:
    """Whether there are other ranks to compute with."""
    return dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1


def sum_over_ranks(tensor: Tensor) -> Tensor:
    r"""Σ over the ranks of a tensor of one shape, the same on all of them; differentiable to any order.

    The loss is taken to be the sum :math:`\sum_r L_r` of all ranks' losses: the gradient of this rank's term
    is the sum of the gradients that arrive on all ranks. All of them must run the backward pass, too.
    """
    if not in_group():
        return tensor
    total: Tensor = _SumOverRanks.apply(tensor)
    return total


def sum_figures(figures: dict[str, float]) -> dict[str, float]:
    """Each figure summed over the ranks; one that a rank does not have (an empty share) counts as 0."""
    if not in_group():
        return dict(figures)
    of_ranks: list[dict[str, float]] = [{} for _ in range(dist.get_world_size())]
    dist.all_gather_object(of_ranks, figures)
    total: dict[str, float] = {}
    for own in of_ranks:
        for name, value in own.items():
            total[name] = total.get(name, 0.0) + value
    return total


def any_rank(flag: bool) -> bool:
    """Whether the flag is set on any rank: the same answer on all of them."""
    if not in_group():
        return flag
    flags = torch.tensor(int(flag), device=_device())
    dist.all_reduce(flags, dist.ReduceOp.MAX)
    return bool(flags.item())


def broadcast_object(thing: Object) -> Object:
    """Rank 0's ``thing``, on all ranks. It is pickled: for plain data between processes of one run."""
    if not in_group():
        return thing
    holder = [thing]
    dist.broadcast_object_list(holder, src=0, device=_device())
    return holder[0]


def barrier() -> None:
    """Wait until all ranks are here."""
    if in_group():
        dist.barrier()


def global_mean(sum_of_losses: Tensor, count: int, ranks: Ranks) -> Tensor:
    r"""The loss a rank calls ``backward()`` on, so that its gradient is that of the global mean.

    .. math::
        \frac{1}{W} \sum_r \nabla \Bigl(\frac{W}{n} \sum_{i \in r} L_i\Bigr) = \nabla \frac{1}{n} \sum_i L_i

    where the mean over the W ranks on the left is what DistributedDataParallel takes of the gradients.

    Args:
        sum_of_losses: over the rows of this rank; 0, but computed by the model, for an empty share.
        count: n, the rows of the *global* batch.
        ranks: of :func:`process_group`.
    """
    return sum_of_losses * (ranks.world / count)


def data_parallel(model: nn.Module, device: torch.device) -> nn.Module:
    """The model with gradients averaged over the ranks in ``backward()``; alone, the model itself.

    All ranks start from rank 0's parameters and buffers. Only a call of what is returned averages: methods of
    the model, evaluation and its state_dict are those of ``model``, which it holds the parameters of.
    """
    if not in_group() or not any(parameter.requires_grad for parameter in model.parameters()):
        return model
    for buffer in model.buffers():
        dist.broadcast(buffer, src=0)
    # From here on the only buffers that move are those of the synchronised BatchNorm, equal on all ranks: no
    # need to send them before every step. PyTorch 2.15 has a new name for that and warns of the old one.
    known = inspect.signature(DistributedDataParallel).parameters
    each_step = "forward_sync_buffers" if "forward_sync_buffers" in known else "broadcast_buffers"
    options: dict[str, Any] = {each_step: False}
    return DistributedDataParallel(
        model,
        device_ids=[torch.cuda.current_device()] if device.type == "cuda" else None,
        # every parameter takes part in every step, also of an empty share
        find_unused_parameters=False,
        gradient_as_bucket_view=True,
        **options,
    )


class _SumOverRanks(torch.autograd.Function):
    """Its own derivative: the sum is linear and symmetric in the ranks."""

    @staticmethod
    def forward(tensor: Tensor) -> Tensor:
        total = tensor.clone(memory_format=torch.contiguous_format)
        dist.all_reduce(total)
        return total

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: Tensor) -> None:
        """Nothing to keep."""

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:  # noqa: ARG004
        total: Tensor = _SumOverRanks.apply(grad)
        return total


def _initialise(device: torch.device, ranks: Ranks, timeout: timedelta) -> None:
    own = None
    if device.type == "cuda":
        if str(device) != "cuda":
            raise MNError(
                f"train.device = {device} would put all {ranks.world} ranks on one device: with torchrun use "
                "cuda, and each rank takes the device of its local rank"
            )
        found = torch.cuda.device_count()
        if ranks.local_rank >= found:
            raise MNError(
                f"local rank {ranks.local_rank} has no CUDA device, there are {found} here: "
                f"torchrun --nproc-per-node {found}, or train.device = cpu"
            )
        own = torch.device("cuda", ranks.local_rank)
        torch.cuda.set_device(own)
    backend = "nccl" if device.type == "cuda" else "gloo"
    try:
        dist.init_process_group(backend, timeout=timeout, device_id=own)
    except (RuntimeError, ValueError) as error:
        raise MNError(
            f"rank {ranks.rank} of {ranks.world} could not join the others ({backend}): "
            f"{_first_line(error)}; start with torchrun, and check that its address can be reached"
        ) from error


def _lost_contact(error: BaseException) -> bool:
    """Whether it is another rank's fault. Those of gloo have no type of their own, but name its files."""
    return isinstance(error, dist.DistError) or (type(error) is RuntimeError and "/gloo/" in str(error))


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


def _device() -> torch.device:
    """Where the backend wants its tensors: nccl knows those of the current CUDA device alone."""
    if dist.get_backend() == "nccl":
        return torch.device("cuda", torch.cuda.current_device())
    return torch.device("cpu")
