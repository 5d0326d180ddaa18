"""Reading YAML as DVC reads it.

DVC and this file both use ruamel's YAML 1.2, where ``1e-3`` is a number. PyYAML follows YAML 1.1 and
reads the same text as a string, so that a learning rate would pass as a word.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from mn.errors import MNError


def read_yaml(path: Path) -> dict[str, Any]:
    """The mapping in a YAML file, or an :class:`MNError` that names the file and the line."""
    try:
        content = YAML(typ="safe").load(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise MNError(f"{path}: no such file; run this from the project's root") from None
    except (YAMLError, UnicodeDecodeError) as error:
        mark = getattr(error, "problem_mark", None)
        where = f" line {mark.line + 1}" if mark else ""
        what = getattr(error, "problem", None) or type(error).__name__
        raise MNError(f"{path}{where}: not valid YAML ({what})") from None
    if not isinstance(content, dict):
        raise MNError(f"{path}: a mapping of keys to values is needed")
    return content
