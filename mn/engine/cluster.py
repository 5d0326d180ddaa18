"""Tasks on the workers of a Dask cluster, their progress told to the process that submits them.

``distributed.Client`` is used as it is, not through joblib's Dask backend: that backend never hands on a
task that the cluster has given up, so that its caller waits without end; it does not notice that the last
worker has gone; and it fills every thread of a worker, while PyTorch's random state belongs to the process.

The submitting process places the tasks itself, one per worker process, and places those of a lost worker
again: a task that keeps its state below ``shared`` goes on from there. The lost worker may in truth still
be at work (a cut connection): keeping two processes off one run is the run store's part.

The scheduler and every worker need this project installed, the workers in the submitting process's version.
"""

from __future__ import annotations

import asyncio
import logging
import math
import pickle
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from importlib import import_module
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import uuid4

from distributed import Client, KilledWorker, Scheduler, get_worker

from mn.engine.codeversion import code_version
from mn.engine.event import Event
from mn.errors import MNError

if TYPE_CHECKING:
    from mn.engine.workers import Task

Outcome = TypeVar("Outcome", covariant=True)

LOOK_SECONDS = 1.0  # between two looks at which workers there are
GOES_ON = "the same command goes on from the last checkpoints"

_one_at_a_time = threading.Lock()  # in a worker process, whose tasks may come from several commands


def on_cluster(
    tasks: Sequence[Task[Outcome]],
    scheduler: str,
    progress: Callable[[Event], None],
    *,
    shared: Path | None = None,
    patience: float = 30.0,
    losses: int = 3,
) -> Iterator[Outcome]:
    """The tasks' outcomes as they come, each worker process at one task at a time.

    Args:
        scheduler: The scheduler's address, ``tcp://host:8786``.
        progress: Called in this thread; a task's events come before its outcome.
        shared: A folder that the tasks use, and every worker therefore has to see; None if they use none.
        patience: Seconds to wait for the scheduler, and for a worker when there is none.
        losses: A task that has lost so many workers is given up.

    Raises:
        MNError: no scheduler, no workers, a worker with other code or without ``shared``; or a task that
            was given up. In that case the other tasks are finished first, and so they are when a task
            raises something itself.
    """
    if not tasks:
        return
    inbox: SimpleQueue[Any] = SimpleQueue()  # what is told, and futures that are done
    topic = f"mn-{uuid4().hex}"
    module = type(tasks[0]).__module__
    with _connected(scheduler, patience) as client:
        client.subscribe_topic(topic, lambda logged: inbox.put(_read(logged)))
        workers = _Workers(client, scheduler, module, shared, patience)
        workers.expect()
        waiting = deque(range(len(tasks)))
        running: dict[Any, _Placed] = {}  # by their futures
        lost = [0] * len(tasks)
        failure: BaseException | None = None
        while waiting or running:
            free = workers.look(busy={placed.worker for placed in running.values()})
            for future, placed in list(running.items()):
                if placed.worker in workers.able:
                    continue
                del running[future]
                future.cancel()
                lost[placed.task] += 1
                if lost[placed.task] < losses:
                    waiting.append(placed.task)
                else:
                    failure = failure or _deadly(tasks[placed.task].name)
            while waiting and free:
                placed = _Placed(waiting.popleft(), free.pop())
                future = client.submit(
                    _work,
                    pickle.dumps(tasks[placed.task]),
                    topic,
                    pure=False,
                    workers=[workers.able[placed.worker]],
                )
                running[future] = placed
                future.add_done_callback(inbox.put)
            try:
                message = inbox.get(timeout=LOOK_SECONDS)
            except Empty:
                continue
            if isinstance(message, Event):
                progress(message)
            elif message in running:  # not one that was cancelled above
                if message.status == "cancelled":
                    raise _lost(scheduler)
                placed = running.pop(message)
                if message.status == "error":
                    error = message.exception(timeout=patience)
                    failure = failure or (
                        _deadly(tasks[placed.task].name) if isinstance(error, KilledWorker) else error
                    )
                    continue
                try:
                    outcome: Outcome = message.result(timeout=patience)
                except asyncio.TimeoutError:  # its worker was lost with it
                    waiting.append(placed.task)
                    continue
                except CancelledError:
                    raise _lost(scheduler) from None
                yield outcome
    if failure is not None:
        raise failure


@dataclass(frozen=True)
class _Placed:
    """A task's number, and the id of the worker process that it was given to."""

    task: int
    worker: str


@dataclass
class _Workers:
    """The cluster's worker processes, by id: those that can do tasks, and those that cannot, and why."""

    client: Any
    scheduler: str
    module: str
    shared: Path | None
    patience: float
    able: dict[str, str] = field(default_factory=dict)  # their addresses
    unable: dict[str, str] = field(default_factory=dict)  # what is said of them

    def __post_init__(self) -> None:
        self._code = code_version(self.module)
        self._paused: set[str] = set()
        self._looked = -math.inf
        self._seen = time.monotonic()

    def expect(self) -> None:
        """Wait for the first worker. Every worker there has to be able: better said now than found later."""
        while not self.look(busy=set()) and not self.unable:
            time.sleep(LOOK_SECONDS / 10)
            self._looked = -math.inf
        for reason in sorted(self.unable.values()):
            raise MNError(f"the Dask worker {reason}")

    def look(self, *, busy: set[str]) -> list[str]:
        """The workers that are free for a task. Asks the scheduler now and then which workers there are."""
        now = time.monotonic()
        if now >= self._looked + LOOK_SECONDS:
            with _in_touch(self.scheduler):
                there = self.client.run_on_scheduler(_who_is_there)
            self._inspect({key: address for key, (address, _) in there.items()})
            # A paused worker goes on with what it does but begins nothing: it is short of memory.
            self._paused = {key for key, (_, running) in there.items() if not running}
            self._looked = time.monotonic()
        free = sorted(self.able.keys() - busy - self._paused)
        if free or busy & self.able.keys():
            self._seen = now
        elif now > self._seen + self.patience:
            raise self._none_left()
        return free

    def _none_left(self) -> MNError:
        short = [f"{self.able[key]} is paused for want of memory" for key in self._paused & self.able.keys()]
        reasons = "".join(f"; {reason}" for reason in sorted([*self.unable.values(), *short]))
        return MNError(
            f"the Dask scheduler {self.scheduler} has no workers for this{reasons}: "
            f"start some with `dask worker {self.scheduler}`; {GOES_ON}"
        )

    def _inspect(self, there: dict[str, str]) -> None:
        self.able = {key: address for key, address in self.able.items() if key in there}
        self.unable = {key: reason for key, reason in self.unable.items() if key in there}
        new = {address: key for key, address in there.items() if key not in self.able | self.unable}
        if not new:
            return
        with _token(self.shared) as token, _in_touch(self.scheduler):
            answers = self.client.run(
                _flaw, self.module, self._code, token, workers=sorted(new), on_error="return"
            )
        for address, answer in answers.items():
            if answer is None:
                self.able[new[address]] = address
            elif isinstance(answer, str):
                self.unable[new[address]] = f"{address} {answer}"
            elif isinstance(answer, (ImportError, AttributeError)):
                self.unable[new[address]] = (
                    f"{address} cannot load this project ({answer}): install it there, restart the worker"
                )
            elif not isinstance(answer, OSError):  # an OSError: it has gone in the meantime
                raise answer


def _who_is_there(dask_scheduler: Scheduler) -> dict[str, tuple[str, bool]]:
    """On the scheduler: each worker process's address, and whether it would begin a task now.

    By the id that each process makes for itself: one that was started again may have the same address.
    """
    return {
        worker.server_id: (worker.address, worker.status.name == "running")
        for worker in dask_scheduler.workers.values()
    }


def _flaw(module: str, code: str, token: Path | None) -> str | None:
    """On a worker: why it cannot do the tasks, or None."""
    # Together, and the hash is kept: when files change later, it still tells what this process has loaded.
    import_module(module)
    if code_version(module) != code:
        return "has another version of this project: install the same there, restart the worker"
    if token is not None and not token.exists():
        return (
            f"does not see {token.parent}: the run store has to be on storage that all workers share; "
            "set MN_STORE to its full path"
        )
    return None


def _read(logged: tuple[float, dict[str, Any]]) -> Event:
    """The event in what the scheduler hands on: the time, and the message with the worker's address added."""
    event = Event(**logged[1]["event"])
    # the scheduler's messages turn lists into tuples
    return replace(event, history=list(event.history))


def _work(payload: bytes, topic: str) -> Any:
    """On a worker: do a task. It comes as bytes so that the scheduler need not load what it is made of."""
    worker = get_worker()

    def tell(event: Event) -> None:
        worker.log_event(topic, {"event": asdict(event)})

    task = pickle.loads(payload)  # noqa: S301  made by the submitting process
    with _one_at_a_time:
        return task(tell)


@contextmanager
def _token(shared: Path | None) -> Iterator[Path | None]:
    """A new file in the shared folder. Nobody has asked for its name yet, so no cache can answer for it."""
    if shared is None:
        yield None
        return
    shared.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=shared, prefix="worker-check-") as file:
        yield shared / Path(file.name).name


@contextmanager
def _connected(scheduler: str, patience: float) -> Iterator[Any]:
    # Any: the client's methods have no annotations.
    try:
        client: Any = Client(  # type: ignore[no-untyped-call]
            scheduler, timeout=patience, set_as_default=False
        )
    except (OSError, asyncio.TimeoutError, ValueError, RuntimeError, TypeError) as error:
        raise MNError(
            f"no Dask scheduler at {scheduler} ({str(error).splitlines()[0]}): "
            "start one with `dask scheduler`, or mend train.scheduler"
        ) from None
    with _quiet_client(), client:
        with _in_touch(scheduler):
            try:
                client.run_on_scheduler(_who_is_there)
            except ImportError as error:
                raise MNError(
                    f"the Dask scheduler {scheduler} cannot load this project ({error}): "
                    "install it there too, restart it"
                ) from None
        yield client


@contextmanager
def _quiet_client() -> Iterator[None]:
    """A lost connection is said in one line here; the client's log would say it in forty."""
    logger = logging.getLogger("distributed.client")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(level)


@contextmanager
def _in_touch(scheduler: str) -> Iterator[None]:
    try:
        yield
    except (OSError, asyncio.TimeoutError, CancelledError):
        raise _lost(scheduler) from None


def _lost(scheduler: str) -> MNError:
    return MNError(f"lost the Dask scheduler {scheduler}: see that it and its workers run; {GOES_ON}")


def _deadly(run: str) -> MNError:
    return MNError(
        f"{run}: every Dask worker that took it was lost, perhaps for want of memory: "
        f"give the workers more (`dask worker --memory-limit`); {GOES_ON}"
    )
