"""Run a function as the ranks of a process group: real processes, gloo, the loopback interface."""

from __future__ import annotations

import os
import pickle
import warnings
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, wait
from datetime import timedelta
from multiprocessing import get_context
from typing import Any

import torch
from torch.distributed import TCPStore

from mn.engine.distributed import Ranks, process_group

SECONDS = 60  # a rank that waits longer for another fails, so that no test hangs


class RankPool:
    """``world`` processes that are kept for several runs: each takes seconds to import PyTorch."""

    def __init__(self, world: int = 2) -> None:
        self.world = world
        self._pool = ProcessPoolExecutor(world, get_context("spawn"), initializer=_quiet)

    def __enter__(self) -> RankPool:
        return self

    def __exit__(self, *error: object) -> None:
        self._pool.shutdown()

    def outcomes(self, function: Callable[..., Any], *arguments: Any) -> list[Any]:
        """What ``function(ranks, *arguments)`` gave on each rank: a result, or the exception it raised."""
        # As torchrun does: the store that the ranks meet at is held by who starts them, at a free port.
        store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        # Pickled here, as are the results: the pool would have the processes share the tensors' memory.
        sent = pickle.dumps((function, arguments))
        runs = [self._pool.submit(_run, rank, self.world, store.port, sent) for rank in range(self.world)]
        wait(runs)
        return [run.exception() or pickle.loads(run.result()) for run in runs]  # noqa: S301

    def run(self, function: Callable[..., Any], *arguments: Any) -> list[Any]:
        """The results of all ranks; raises what the first that failed raised."""
        outcomes = self.outcomes(function, *arguments)
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome
        return outcomes


def _quiet() -> None:
    torch.set_num_threads(1)
    warnings.simplefilter("error")


def _run(rank: int, world: int, port: int, sent: bytes) -> bytes:
    os.environ.update(
        RANK=str(rank),
        LOCAL_RANK=str(rank),
        WORLD_SIZE=str(world),
        MASTER_ADDR="127.0.0.1",
        MASTER_PORT=str(port),
        TORCHELASTIC_USE_AGENT_STORE="True",
    )
    function, arguments = pickle.loads(sent)  # noqa: S301
    with process_group(torch.device("cpu"), timeout=timedelta(seconds=SECONDS)) as ranks:
        assert ranks == Ranks(rank, world, rank)
        return pickle.dumps(function(ranks, *arguments))
