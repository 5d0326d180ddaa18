"""The examples in docstrings run, and give what they say."""

from __future__ import annotations

import doctest
import importlib
import pkgutil
import re
from pathlib import Path

import pytest

import mn.nn

MODULES = ["mn.functional", *(f"mn.nn.{m.name}" for m in pkgutil.iter_modules(mn.nn.__path__))]


@pytest.mark.parametrize("name", MODULES)
def test_examples_run(name: str) -> None:
    result = doctest.testmod(importlib.import_module(name))
    assert result.failed == 0


GUIDE = Path(__file__).resolve().parents[2] / "docs" / "method.md"


def test_the_guide_runs_from_top_to_bottom() -> None:
    text = GUIDE.read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    assert len(blocks) == 4
    exec(compile("\n".join(blocks), str(GUIDE), "exec"), {})  # noqa: S102
