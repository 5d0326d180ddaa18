"""What is wrong with a file of settings, in one line: file, key, value, what is allowed."""

from __future__ import annotations

import difflib
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from mn.errors import MNError

_Model = TypeVar("_Model", bound=BaseModel)


def validated(model: type[_Model], content: Any, path: Path, prefix: tuple[str, ...] = ()) -> _Model:
    """A file's content, or the part of it at ``prefix``, as ``model``."""
    try:
        return model.model_validate(content)
    except ValidationError as error:
        raise MNError(_explain(model, error, path, prefix)) from None


def _explain(model: type[BaseModel], error: ValidationError, path: Path, prefix: tuple[str, ...]) -> str:
    """The first of pydantic's findings as one line: file, key, value, what is allowed."""
    first = error.errors(include_url=False)[0]
    keys, field, siblings = _locate(model, first["loc"])
    key = ".".join((*prefix, *keys))
    if first["type"] == "extra_forbidden":
        close = difflib.get_close_matches(keys[-1], siblings, n=1)
        hint = f"did you mean {close[0]}?" if close else f"allowed: {', '.join(siblings)}"
        return f"{path}: unknown key {key} = {_short(first['input'])}; {hint}"
    if first["type"] == "value_error":  # said by a check of ours
        return f"{path}: {key}: {first['ctx']['error']}"
    allowed = _allowed(field) if field else "a mapping of settings"
    if first["type"] == "missing":
        return f"{path}: {key} is missing; needed: {allowed}"
    return f"{path}: {key} = {_short(first['input'])} is not allowed; needed: {allowed}"


def refuse_setting(section: type[BaseModel], key: str, value: Any) -> None:
    """Say of a single setting of a section that it is not allowed, if it is not."""
    try:
        section(**{key: value})
    except ValidationError:
        allowed = _allowed(section.model_fields[key])
        raise ValueError(f"{key} = {_short(value)} is not allowed; needed: {allowed}") from None


def _allowed(field: FieldInfo) -> str:
    allowed = field.description or ""
    return f"{allowed} (or auto)" if field.default == "auto" and "auto" not in allowed else allowed


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _locate(
    model: type[BaseModel], loc: tuple[int | str, ...]
) -> tuple[list[str], FieldInfo | None, list[str]]:
    """Follow an error's location as far as it names settings: the rest are pydantic's union branches."""
    keys: list[str] = []
    field: FieldInfo | None = None
    current: Any = model
    siblings: list[str] = []
    for part in loc:
        if part == "[key]":  # what is wrong is the key of a mapping, named already
            break
        kinds = _kinds(current)
        section = next((one for one in kinds if isinstance(one, type) and issubclass(one, BaseModel)), None)
        if section is not None:
            siblings = list(section.model_fields)
            keys.append(str(part))
            field = section.model_fields.get(str(part))
            current = field.annotation if field else None
        elif isinstance(part, int):
            keys[-1] += f"[{part}]"
            current = next((get_args(one)[0] for one in kinds if get_origin(one) is list), None)
        elif mapping := next((one for one in kinds if get_origin(one) is dict), None):
            keys.append(str(part))
            current = get_args(mapping)[1]
    return keys, field, siblings


def _kinds(annotation: Any) -> list[Any]:
    """The members of a union, what they are annotated with taken off; anything else by itself."""
    if get_origin(annotation) is Annotated:
        return _kinds(get_args(annotation)[0])
    if get_origin(annotation) in (Union, UnionType):
        return [kind for one in get_args(annotation) for kind in _kinds(one)]
    return [annotation]
