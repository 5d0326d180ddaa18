"""The code part of a run's key: what changes it and what does not."""

from __future__ import annotations

from pathlib import Path

import pytest

from mn.engine.codeversion import code_version, used_modules

BASE = {
    "pkg/__init__.py": "from pkg.unrelated import x",
    "pkg/main.py": '"""Doc."""\nfrom pkg import helper\n\ndef f():\n    """Doc."""\n    return helper.g()\n',
    "pkg/helper.py": "import os\n\ndef g():\n    return 1\n",
    "pkg/unrelated.py": "x = 1\n",
}


def version(root: Path, **changes: str) -> str:
    root.mkdir(exist_ok=True)
    names = {name.replace("/", "_").removesuffix(".py"): name for name in BASE}
    files = {**BASE, **{names[key]: text for key, text in changes.items()}}
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return code_version("pkg.main", root)


def test_comments_docstrings_and_layout_change_nothing(tmp_path: Path) -> None:
    commented = "# why\nfrom pkg import helper\n\n\ndef f():\n    '''Other.'''\n    return (helper.g())\n"
    assert version(tmp_path / "a") == version(tmp_path / "b", pkg_main=commented)


@pytest.mark.parametrize(
    ("name", "text"),
    [("pkg_main", "from pkg import helper\n\ndef f():\n    return helper.g() + 1\n"),
     ("pkg_helper", "import os\n\ndef g():\n    return 2\n")],
    ids=["the module itself", "a module it imports"],
)  # fmt: skip
def test_code_changes_it(tmp_path: Path, name: str, text: str) -> None:
    assert version(tmp_path / "a") != version(tmp_path / "b", **{name: text})


def test_module_that_is_not_imported_changes_nothing(tmp_path: Path) -> None:
    assert version(tmp_path / "a") == version(tmp_path / "b", pkg_unrelated="x = 2\n")


def test_imports_for_the_type_checker_change_nothing(tmp_path: Path) -> None:
    text = "if TYPE_CHECKING:\n    from pkg.unrelated import x\n"
    first = version(tmp_path / "a", pkg_helper=text)
    assert first == version(tmp_path / "b", pkg_helper=text, pkg_unrelated="x = 2\n")


def test_training_covers_the_method_and_not_the_pictures() -> None:
    used = used_modules("mn.engine.fit")
    assert {"mn.functional", "mn.nn.model", "mn.data.split", "mn.engine.build"} <= set(used)
    assert [name for name in used if name.startswith(("mn.analysis", "pipeline"))] == []


def test_what_one_method_uses_can_be_left_out_for_the_others() -> None:
    used = used_modules("mn.engine.fit", without=("mn.baselines.maxl",))
    assert [name for name in used if name.startswith("mn.baselines")] == ["mn.baselines.wide"]
    whole = code_version("mn.engine.fit")
    assert code_version("mn.engine.fit", without=("mn.baselines.maxl",)) != whole
    assert "mn.engine.progress" not in used
