"""The names of backbones, and their check: without PyTorch, so that settings are read in no time."""

from __future__ import annotations

import difflib
import re
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from mn.errors import MNError

OWN = ("convnet4", "densenet40", "resnet29", "resnet56")
TORCHVISION = "torchvision:"


def check_backbone(name: str) -> None:
    """Refuse a name that :func:`mn.nn.backbones.build_backbone` cannot build.

    Raises:
        MNError: one line that says what is allowed, with the nearest name if there is one.

    Example:
        >>> check_backbone("torchvision:resnet18")
    """
    if name in OWN:
        return
    classifiers = torchvision_classifiers()
    wanted = name.removeprefix(TORCHVISION)
    if name.startswith(TORCHVISION) and wanted in classifiers:
        return
    names = classifiers if name.startswith(TORCHVISION) else (*OWN, *classifiers)
    near = difflib.get_close_matches(wanted, names, n=1)
    hint = f" (did you mean {_full(near[0])}?)" if near else ""
    raise MNError(
        f"backbone {name!r} is not known{hint}; allowed are {', '.join(OWN)} and {TORCHVISION}NAME of an "
        f"image classifier of torchvision, not its detection, segmentation, video, flow or quantised models"
    )


@cache
def torchvision_classifiers() -> tuple[str, ...]:
    """The image classifiers of the installed torchvision.

    Read from its source, in milliseconds: ``torchvision.models.list_models`` has to import PyTorch first,
    which takes seconds. Models of other kinds are registered in sub-packages, which are left out.
    """
    package = find_spec("torchvision")
    if package is None or not package.submodule_search_locations:
        raise MNError("torchvision, which has the backbones torchvision:NAME, is missing: install it")
    registered = re.compile(r"^@register_model\(\)\n(?:@.*\n)*def (\w+)\(", re.MULTILINE)
    files = sorted(Path(package.submodule_search_locations[0], "models").glob("*.py"))
    return tuple(
        sorted(name for file in files for name in registered.findall(file.read_text(encoding="utf-8")))
    )


def _full(name: str) -> str:
    return name if name in OWN else TORCHVISION + name
