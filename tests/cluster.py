"""A real Dask cluster of processes on this machine."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

# Not from conftest: workers load this file, and need not wait for PyTorch.
ROOT = Path(__file__).parent.parent
HOST = "127.0.0.1"


@dataclass
class Cluster:
    """A scheduler, and workers without a nanny: one that is killed stays away."""

    folder: Path
    workers: list[subprocess.Popen[str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._start_scheduler()

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *error: object) -> None:
        self.end_workers()
        end(self.scheduler)

    def have(self, number: int, root: Path = ROOT) -> str:
        """See that there are a live scheduler and so many live workers; gives the scheduler's address."""
        if self.scheduler.poll() is not None:
            self.end_workers()
            self._start_scheduler()
        alive = [worker for worker in self.workers if worker.poll() is None]
        for worker in self.workers:
            if worker not in alive[:number]:
                end(worker)
        # Two threads: that a process computes one run at a time must not depend on how it was started.
        options = [
            "--no-nanny",
            "--nthreads",
            "2",
            "--memory-limit",
            "0",
            "--local-directory",
            str(self.folder),
        ]
        new = [
            self._start("dask_worker", self.address, *options, root=root) for _ in range(number - len(alive))
        ]
        self.workers = alive[:number] + new
        for worker in new:
            _wait(worker, "Registered to:")
        return self.address

    def end_workers(self) -> None:
        for worker in self.workers:
            end(worker)
        self.workers = []

    def _start_scheduler(self) -> None:
        self.scheduler = self._start("dask_scheduler", "--port", "0")
        self.address = _wait(self.scheduler, "Scheduler at:").split()[-1]

    def _start(self, command: str, *arguments: str, root: Path = ROOT) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [
                sys.executable,
                "-m",
                f"distributed.cli.{command}",
                *arguments,
                "--no-dashboard",
                "--host",
                HOST,
            ],
            cwd=root,
            env=os.environ | {"PYTHONPATH": str(root)},
            stderr=subprocess.PIPE,
            text=True,
        )


def _wait(process: subprocess.Popen[str], words: str) -> str:
    """Read what a process says until it says this; gives the line."""
    assert process.stderr is not None
    return next(line for line in process.stderr if words in line)


def end(process: subprocess.Popen[str]) -> None:
    """Kill a process with SIGKILL."""
    assert process.stderr is not None
    process.kill()
    process.wait()
    process.stderr.close()
