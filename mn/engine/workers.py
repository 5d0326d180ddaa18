"""Tasks side by side in processes, of this machine or of a cluster, their progress told to one listener."""

from __future__ import annotations

import signal
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.managers import SyncManager
from pathlib import Path
from queue import Queue
from typing import Any, Protocol, TypeVar

from joblib import Parallel, delayed
from joblib.externals.loky.process_executor import TerminatedWorkerError

from mn.engine.event import Event
from mn.engine.interrupt import ignoring_interrupts
from mn.errors import MNError

Outcome = TypeVar("Outcome", covariant=True)


class Task(Protocol[Outcome]):
    """Something to do that tells of its progress. It has to be picklable."""

    @property
    def name(self) -> str:
        """What it is called in messages."""
        ...

    def __call__(self, progress: Callable[[Event], None]) -> Outcome: ...


def side_by_side(
    tasks: Sequence[Task[Outcome]],
    jobs: int,
    progress: Callable[[Event], None],
    *,
    scheduler: str | None = None,
    shared: Path | None = None,
) -> Iterator[Outcome]:
    """The tasks' outcomes as they come, ``jobs`` tasks at a time; one at a time stays in this process.

    Args:
        scheduler: The address of a Dask scheduler: its workers do the tasks, as many at a time as there are
            workers, whatever ``jobs`` is.
        shared: A folder that the tasks use and that the cluster's workers therefore have to see.
    """
    if scheduler is not None:
        yield from _cluster()(tasks, scheduler, progress, shared=shared)
    elif jobs <= 1:
        for task in tasks:
            yield task(progress)
    else:
        yield from _in_processes(tasks, jobs, progress)


def _cluster() -> Callable[..., Iterator[Any]]:
    """Dask is an optional package, and importing it takes a second that most commands need not wait."""
    try:
        from mn.engine.cluster import on_cluster
    except ModuleNotFoundError as error:
        raise MNError(
            f"train.scheduler needs the package {error.name}: pip install 'meta-neighborhoods[distributed]', "
            "or set train.scheduler to local"
        ) from None
    return on_cluster


def _in_processes(
    tasks: Sequence[Task[Outcome]], jobs: int, progress: Callable[[Event], None]
) -> Iterator[Outcome]:
    # The workers, and the process that carries their messages, must outlive a Ctrl-C that the whole
    # process group receives: they are told to stop by other means and save their state first.
    with ignoring_interrupts():
        manager = SyncManager()
        manager.start(signal.signal, (signal.SIGINT, signal.SIG_IGN))
    with (
        manager,
        warnings.catch_warnings(),
        Parallel(n_jobs=jobs, return_as="generator_unordered", batch_size=1) as parallel,
    ):
        # joblib replaces a worker whose heap has grown by much, between two tasks: nothing to be told
        warnings.filterwarnings("ignore", "A worker stopped while some jobs were given", UserWarning)
        with ignoring_interrupts():
            list(parallel(delayed(_warm_up)() for _ in range(jobs)))
        messages: Queue[Event | None] = manager.Queue()
        listener = threading.Thread(target=_listen, args=(messages, progress), daemon=True)
        listener.start()
        try:
            yield from parallel(delayed(_work)(task, messages) for task in tasks)
        except TerminatedWorkerError:
            raise MNError(
                "a worker process was killed, perhaps for want of memory: "
                "lower train.jobs; the same command goes on from the last checkpoints"
            ) from None
        finally:
            messages.put(None)
            listener.join()


def _warm_up() -> None:
    """Have a worker import PyTorch while nobody waits for it to react."""
    import mn.engine.fit  # noqa: F401


def _work(task: Task[Any], messages: Queue[Event | None]) -> Any:
    return task(messages.put)


def _listen(messages: Queue[Event | None], progress: Callable[[Event], None]) -> None:
    while (event := messages.get()) is not None:
        progress(event)
