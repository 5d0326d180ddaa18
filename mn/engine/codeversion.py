"""A hash of the code behind a result: the syntax trees of a module and of all it imports from here.

Comments, docstrings and layout are no part of a syntax tree (docstrings are taken out), so that editing
them invalidates nothing. Third-party packages are left to ``requirements.lock``; a run records their
versions. A package's ``__init__`` counts where something is taken from it, not for being a parent; imports
under ``TYPE_CHECKING`` compute nothing and do not count.
"""

from __future__ import annotations

import ast
import hashlib
from functools import cache
from pathlib import Path

import mn

_ROOT = Path(mn.__file__).parent.parent


@cache
def code_version(module: str, root: Path = _ROOT, *, without: tuple[str, ...] = ()) -> str:
    """SHA-256 over the normalised sources of ``module`` and everything it imports below ``root``.

    Args:
        without: modules and packages that are imported but not used, and so have no part in the result.
    """
    digest = hashlib.sha256()
    for name, path in sorted(_closure(module, root, without).items()):
        digest.update(f"{name}\n{_normalised(path)}\n".encode())
    return digest.hexdigest()


def used_modules(module: str, root: Path = _ROOT, *, without: tuple[str, ...] = ()) -> list[str]:
    """The names of the modules that :func:`code_version` covers."""
    return sorted(_closure(module, root, without))


def _closure(module: str, root: Path, without: tuple[str, ...]) -> dict[str, Path]:
    found: dict[str, Path] = {}
    waiting = [module]
    while waiting:
        name = waiting.pop()
        path = _source(name, root)
        left_out = any(name == one or name.startswith(f"{one}.") for one in without)
        if path is None or name in found or left_out:
            continue
        found[name] = path
        waiting += _imports(path, name, root)
    return found


def _source(name: str, root: Path) -> Path | None:
    """The file of a module of this project; None for anything else."""
    base = root.joinpath(*name.split("."))
    for path in (base.with_suffix(".py"), base / "__init__.py"):
        if path.is_file():
            return path
    return None


def _imports(path: Path, name: str, root: Path) -> list[str]:
    """The modules that a file's import statements name, wherever in the file they stand."""
    names: list[str] = []
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    tree = _Runtime().visit(ast.parse(path.read_text(encoding="utf-8")))
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            if node.level:
                parents = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*parents, *([node.module] if node.module else [])])
            else:
                base = node.module or ""
            for alias in node.names:
                # `from mn.nn import heads` takes a module, `from mn.nn import CosineHead` what the
                # package's __init__ gathers.
                module = f"{base}.{alias.name}"
                names.append(module if _source(module, root) else base)
    return names


class _Runtime(ast.NodeTransformer):
    """Takes out what only a type checker reads."""

    def visit_If(self, node: ast.If) -> ast.AST:
        if isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            return ast.Pass()
        return self.generic_visit(node)


def _normalised(path: Path) -> str:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            first = node.body[0] if node.body else None
            if (
                isinstance(first, ast.Expr)
                and isinstance(first.value, ast.Constant)
                and isinstance(first.value.value, str)
            ):
                node.body = node.body[1:]
    return ast.dump(tree)
