"""The README's code runs, and its commands exist."""

from __future__ import annotations

import re

import pytest

from tests.conftest import ROOT

README = (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("block", re.findall(r"```python\n(.*?)```", README, re.DOTALL))
def test_python_block_runs(block: str) -> None:
    names: dict[str, object] = {}
    exec(compile(block, "README.md", "exec"), names)  # noqa: S102
    assert "model" in names


def test_every_pipeline_command_shown_exists() -> None:
    from pipeline.cli import app

    known = {command.callback.__name__ for command in app.registered_commands if command.callback}
    shown = set(re.findall(r"(?:^\$|;) pipeline (\w+)", README, re.MULTILINE))
    assert shown
    assert shown <= known


def test_every_make_target_shown_exists() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    shown = set(re.findall(r"(?:^\$ |`)make (\w+)", README, re.MULTILINE))
    assert {"repro", "test"} <= shown
    assert [target for target in shown if f"\n{target}:" not in makefile] == []


def test_every_link_into_the_repository_exists() -> None:
    links = [link for link in re.findall(r"\]\(([^)]+)\)", README) if "://" not in link]
    assert [link for link in links if not (ROOT / link).exists()] == []
