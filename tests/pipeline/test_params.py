"""params.yaml and recipes.yaml: what they come to, and what is said about a wrong value."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mn.errors import MNError
from mn.yamlfile import read_yaml
from pipeline.params import plan, read_params
from tests.conftest import ROOT, set_params


def leaves(content: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(content, dict):
        for key, value in content.items():
            yield from leaves(value, f"{path}.{key}")
    elif isinstance(content, list):
        for value in content:
            yield from leaves(value, path)
    else:
        yield path, content


@pytest.mark.parametrize("name", ["params.yaml", "recipes.yaml"])
def test_every_numeric_leaf_is_a_number(name: str) -> None:
    """YAML 1.1 readers take 1e-3 for a word: what looks like a number has to be written as one."""
    words = [(path, leaf) for path, leaf in leaves(read_yaml(ROOT / name)) if isinstance(leaf, str)]
    looks_numeric = re.compile(r"[-+]?[\d.]+(e[-+]?\d+)?", re.IGNORECASE)
    assert [word for word in words if looks_numeric.fullmatch(word[1])] == []
    text = (ROOT / name).read_text(encoding="utf-8")
    assert re.findall(r":\s*\d+e[-+]?\d+", text) == [], "write 1.0e-3, which every reader takes for a number"


def test_one_exponent_form_is_a_number_either_way(project: Path) -> None:
    path = project / "params.yaml"
    path.write_text(path.read_text().replace("  lr: auto", "  lr: 1e-3"))
    assert plan(project, "digits").runs[0].training.lr == 0.001  # type: ignore[union-attr]


@pytest.mark.parametrize("dataset", ["spiral", "digits", "diabetes"])
def test_shipped_parameters_leave_nothing_to_auto(dataset: str) -> None:
    for run in plan(ROOT, dataset).runs:
        assert "auto" not in [leaf for _, leaf in leaves(run.identity())]


def test_a_setting_of_params_goes_before_the_recipe(project: Path) -> None:
    set_params(project, model={"T": 0.7})
    run = next(run for run in plan(project, "digits").runs if run.method == "mn")
    assert run.dictionary is not None
    assert run.dictionary.T == 0.7


def test_a_method_has_only_the_groups_it_uses(project: Path) -> None:
    groups = {
        run.method: {key for key, value in run.identity().items() if isinstance(value, dict)}
        for dataset in ("digits", "diabetes")
        for run in plan(project, dataset).runs
    }
    assert groups == {
        "vanilla": {"network", "training"},
        "vanilla_ifilm": {"network", "training", "ifilm"},
        "mn": {"network", "training", "dictionary"},
        "mn_ifilm": {"network", "training", "dictionary", "ifilm"},
        "knn": {"neighbours"},
    }


def test_settings_without_effect_do_not_change_a_run(project: Path) -> None:
    before = [run.identity() for run in plan(project, "digits").runs]
    set_params(project, model={"hidden": [5, 5], "activation": "tanh", "k": [2]}, train={"momentum": 0.5})
    set_params(project, train={"device": "cpu", "jobs": 7, "threads": 3, "checkpoint_seconds": 99.0})
    assert [run.identity() for run in plan(project, "digits").runs] == before


def test_folds_times_seeds_are_runs(project: Path) -> None:
    set_params(project, methods=["vanilla"], seeds=[0, 4])
    names = [run.name for run in plan(project, "diabetes").runs]
    assert names == [f"vanilla-fold{fold}-seed{seed}" for fold in range(5) for seed in (0, 4)]


WRONG = {
    "unknown key": (("  S: auto", "  Sx: 8"), ["model.Sx", "8", "did you mean S?"]),
    "unknown section": (("seeds:", "seed:"), ["seed", "did you mean seeds?"]),
    "negative S": (("  S: auto", "  S: -1"), ["model.S = -1", "at least 1"]),
    "S of the wrong type": (("  S: auto", "  S: '8'"), ["model.S = '8'", "whole number"]),
    "S true": (("  S: auto", "  S: true"), ["model.S = True", "whole number"]),
    "S empty": (("  S: auto", "  S:"), ["model.S = None", "whole number"]),
    "T zero": (("  T: auto", "  T: 0"), ["model.T = 0", "above 0"]),
    "T not a number": (("  T: auto", "  T: .nan"), ["model.T = nan", "above 0"]),
    "steps zero": (("  steps: auto", "  steps: 0"), ["model.steps = 0", "at least 1"]),
    "dropout one": (("  dropout: auto", "  dropout: 1.0"), ["model.dropout = 1.0", "below 1"]),
    "unknown similarity": (("similarity: auto", "similarity: dot"), ["model.similarity = 'dot'", "cosine"]),
    "one width of several": (("hidden: auto", "hidden: [8, 0]"), ["model.hidden[1] = 0", "at least 1"]),
    "unknown data set": (("[spiral, digits", "[spirals, digits"), ["datasets = spirals", "spiral, digits"]),
    "unknown method": (("methods: auto", "methods: [nm]"), ["methods = ['nm']", "vanilla_ifilm"]),
    "no method": (("methods: auto", "methods: []"), ["methods = []", "vanilla_ifilm"]),
    "method twice": (("methods: auto", "methods: [mn, mn]"), ["methods names mn more than once"]),
    "negative seed": (("seeds: auto", "seeds: [-1]"), ["seeds = [-1]", "at least 0"]),
    "section that is no mapping": (
        ("data:\n  rows: auto", "data: 3 # {rows: auto}"),
        ["data = 3", "mapping"],
    ),
    "backbone that does not fit": (("backbone: auto", "backbone: identity"), ["identity", "use convnet4"]),
    "head that does not fit": (("head: auto", "head: mlp"), ["mlp", "use cosine or dot"]),
    "alpha that does not fit": (("alpha: auto", "alpha: layer"), ["layer", "mlp head"]),
    "not YAML": (("  S: auto", "  S: ["), ["line", "not valid YAML"]),
}


@pytest.mark.parametrize(("change", "told"), WRONG.values(), ids=WRONG.keys())
def test_a_wrong_value_is_named_with_what_is_allowed(
    project: Path, change: tuple[str, str], told: list[str]
) -> None:
    shipped = (ROOT / "params.yaml").read_text(encoding="utf-8")
    assert change[0] in shipped
    (project / "params.yaml").write_text(shipped.replace(change[0], change[1], 1), encoding="utf-8")
    with pytest.raises(MNError) as caught:
        plan(project, "digits")
    message = str(caught.value)
    assert "\n" not in message
    assert "params.yaml" in message
    assert [part for part in told if part not in message] == []


def test_a_wrong_recipe_is_named(project: Path) -> None:
    path = project / "recipes.yaml"
    path.write_text(path.read_text().replace("    S: 500", "    S: 0"))
    with pytest.raises(MNError, match=r"recipes\.yaml: digits\.model\.S = 0 is not allowed"):
        plan(project, "digits")


def test_missing_file_says_where_to_be(tmp_path: Path) -> None:
    with pytest.raises(MNError, match="run this from the project's root"):
        read_params(tmp_path)
