"""The examples in docstrings run, and give what they say."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import pytest

import mn.nn

MODULES = ["mn.functional", *(f"mn.nn.{m.name}" for m in pkgutil.iter_modules(mn.nn.__path__))]


@pytest.mark.parametrize("name", MODULES)
def test_examples_run(name: str) -> None:
    result = doctest.testmod(importlib.import_module(name))
    assert result.failed == 0
