"""A clone of this project in a temporary folder, with tiny parameters, driven by the real ``dvc``."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.conftest import ROOT, TINY, set_params

DATASETS = ["spiral", "diabetes"]


@dataclass(frozen=True)
class Clone:
    """The clone's root and the environment its commands run in."""

    root: Path

    @property
    def environment(self) -> dict[str, str]:
        binaries = str(Path(sys.executable).parent)
        return {
            **os.environ,
            "PATH": f"{binaries}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": str(self.root),  # the clone's code, not the installed one
            "PYTHONDONTWRITEBYTECODE": "",
            "DVC_NO_ANALYTICS": "1",
            "GIT_AUTHOR_NAME": "test",
            "GIT_AUTHOR_EMAIL": "test@example.org",
            "GIT_COMMITTER_NAME": "test",
            "GIT_COMMITTER_EMAIL": "test@example.org",
        }

    def run(self, *command: str) -> str:
        """A command's standard output; its error output is shown if it fails."""
        done = subprocess.run(
            command, cwd=self.root, env=self.environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def read(self, name: str) -> Any:
        return json.loads((self.root / name).read_text(encoding="utf-8"))

    def commit(self, subject: str) -> None:
        self.run("git", "add", "--all")
        self.run("git", "commit", "--quiet", "--allow-empty", "--message", subject)


def make_clone(root: Path, **params: Any) -> Clone:
    """What git would hand to someone else, as the working tree has it now; tiny settings committed."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).is_file() and not name.startswith(("tests/", "docs/", "dvc.lock")):
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, root / name)
    set_params(root, datasets=DATASETS, seeds=[0], **TINY)
    set_params(root, **params)
    clone = Clone(root)
    clone.run("git", "init", "--quiet")
    clone.commit("Tiny project")
    return clone
