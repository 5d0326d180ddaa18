"""Tasks side by side: outcomes and progress arrive, and a killed worker is told of."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from mn.engine.event import Event
from mn.engine.workers import side_by_side
from mn.errors import MNError


@dataclass(frozen=True)
class Named:
    name: str
    dies: bool = False

    def __call__(self, progress: Callable[[Event], None]) -> tuple[str, int]:
        if self.dies:
            os.kill(os.getpid(), signal.SIGKILL)
        progress(Event(self.name, "end"))
        return self.name, os.getpid()


def test_one_at_a_time_stays_in_this_process() -> None:
    events: list[Event] = []
    outcomes = list(side_by_side([Named("a"), Named("b")], 1, events.append))
    assert outcomes == [("a", os.getpid()), ("b", os.getpid())]
    assert [event.run for event in events] == ["a", "b"]


def test_two_at_a_time_are_other_processes_and_tell_of_their_progress() -> None:
    events: list[Event] = []
    outcomes = dict(side_by_side([Named(name) for name in "abcd"], 2, events.append))
    assert set(outcomes) == set("abcd")
    assert os.getpid() not in outcomes.values()
    assert {event.run for event in events} == set("abcd")


def test_killed_worker_is_one_line_that_says_what_to_do() -> None:
    with pytest.raises(MNError, match=r"killed.*lower train\.jobs"):
        list(side_by_side([Named("a"), Named("b", dies=True)], 2, lambda _: None))
