"""params.yaml and recipes.yaml: what they come to, and what is said about a wrong value."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

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


RECIPES = [name for name in read_yaml(ROOT / "recipes.yaml") if not name.startswith("_")]


@pytest.mark.parametrize("dataset", RECIPES)
def test_shipped_parameters_leave_nothing_to_auto(dataset: str) -> None:
    for run in plan(ROOT, dataset).runs:
        assert "auto" not in [leaf for _, leaf in leaves(run.identity())]


def test_every_image_set_of_the_paper_has_its_recipe(project: Path) -> None:
    names = [
        "mnist",
        "mnist_m",
        "svhn",
        "pacs",
        "cifar10",
        "cifar100",
        "cinic10",
        "tiny_imagenet",
        "imagenet",
    ]
    for name in names:
        runs = plan(project, name).runs
        assert {run.method for run in runs} == {"vanilla", "maxl", "vanilla_ifilm", "mn", "mn_ifilm"}


TABLE_3 = {
    "vanilla_dot_sgd": ("vanilla", "dot", "sgd", True, None),
    "vanilla_dot_adamw": ("vanilla", "dot", "adamw", True, None),
    "vanilla_cos_sgd": ("vanilla", "cosine", "sgd", False, None),
    "vanilla_cos_adamw": ("vanilla", "cosine", "adamw", False, None),
    "mn_1step_scalar": ("mn", "cosine", "adamw", False, (1, "scalar")),
    "mn_1step_diagonal": ("mn", "cosine", "adamw", False, (1, "diagonal")),
    "mn_3step_scalar": ("mn", "cosine", "adamw", False, (3, "scalar")),
    "mn_3step_diagonal": ("mn", "cosine", "adamw", False, (3, "diagonal")),
}


@pytest.mark.parametrize("row", TABLE_3)
def test_a_row_of_table_3_is_one_line_of_params(project: Path, row: str) -> None:
    set_params(project, methods=[row], model={"head": "auto"})
    run = plan(project, "mnist").runs[0]
    assert run.network is not None
    assert run.training is not None
    inner = (run.dictionary.steps, run.dictionary.alpha) if run.dictionary else None
    found = (run.method, run.network.head, run.training.optimizer, run.network.last_relu, inner)
    assert found == TABLE_3[row]
    assert run.name == f"{row}-seed0"


def test_one_run_in_two_rows_is_one_run(project: Path) -> None:
    set_params(project, methods=["vanilla", "vanilla_cos_adamw", "mn_1step_scalar", "mn"])
    runs = plan(project, "mnist").runs
    assert runs[0].identity() == runs[1].identity()
    assert runs[2].identity() == runs[3].identity()


def test_what_a_variant_is_made_of_goes_before_params(project: Path) -> None:
    """Or the row would not be what its name says; what it leaves open is params.yaml's to set."""
    set_params(project, methods=["vanilla_cos_sgd"], model={"head": "dot"}, train={"epochs": 2})
    run = plan(project, "mnist").runs[0]
    assert run.network is not None
    assert run.training is not None
    assert (run.network.head, run.training.epochs) == ("cosine", 2)


def test_params_go_before_a_methods_own_settings(project: Path) -> None:
    set_params(project, methods=["maxl"], train={"epochs": "auto"})
    own = plan(project, "mnist").runs[0].training
    set_params(project, train={"epochs": 2})
    changed = plan(project, "mnist").runs[0].training
    assert own is not None
    assert changed is not None
    assert (own.optimizer, own.epochs, own.lr_factor) == ("sgd", 200, 0.5)
    assert (changed.optimizer, changed.epochs) == ("sgd", 2)


def test_another_recipe_changes_what_it_names(project: Path) -> None:
    set_params(project, recipe="short", seeds="auto", train={"epochs": "auto"})
    short = plan(project, "cifar10")
    assert [run.seed for run in short.runs[:2]] == [0, 1]
    training = short.runs[0].training
    assert training is not None
    assert (training.epochs, training.lr_drops, training.batchnorm) == (8, [6], "recomputed")


def test_an_unknown_recipe_is_told_with_those_there_are(project: Path) -> None:
    set_params(project, recipe="quick")
    with pytest.raises(MNError, match="recipe = quick is unknown for mnist; allowed: auto, paper, short"):
        plan(project, "mnist")


def test_baselines_for_classes_are_refused_for_targets(project: Path) -> None:
    set_params(project, methods=["wide"])
    with pytest.raises(MNError, match="wide is a baseline for classification"):
        plan(project, "diabetes")


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
    set_params(project, train={"workers": 2, "channels_last": False, "compile": True, "alpha_lr": "auto"})
    set_params(project, train={"scheduler": "tcp://127.0.0.1:8786"}, model={"subclasses": 3, "entropy": 0.0})
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
        ("data:\n  rows: auto             # all, or how many rows to draw\n  limit: auto", "data: 3"),
        ["data = 3", "mapping"],
    ),
    "backbone that does not fit": (
        ("backbone: auto", "backbone: identity"),
        ["identity", "use convnet4, say"],
    ),
    "head that does not fit": (("head: auto", "head: mlp"), ["mlp", "use cosine or dot"]),
    "alpha that does not fit": (("alpha: auto", "alpha: layer"), ["layer", "mlp head"]),
    "unknown backbone": (("backbone: auto", "backbone: resnet28"), ["model.backbone", "resnet29"]),
    "unknown torchvision model": (
        ("backbone: auto", "backbone: torchvision:resnet17"),
        ["model.backbone", "torchvision:NAME"],
    ),
    "scheduler that is no address": (("scheduler: auto", "scheduler: host"), ["train.scheduler", "tcp://"]),
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


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (
            {"search": [{"method": "mn", "grid": [{"T": [0.1]}], "splits": "some"}]},
            "search[0].splits = 'some'",
        ),
        ({"search": [{"method": "mn", "grid": [{"T": [0.1]}], "splitz": "all"}]}, "search[0].splitz = 'all'"),
        (
            {"variants": {"mn_x": {"method": "mn", "train": {"epochs": -3}}}},
            "variants.mn_x.train.epochs = -3",
        ),
        ({"variants": {"mn_x": {"method": "mn", "model": {"TT": 3}}}}, "variants.mn_x.model.TT = 3"),
        ({"by_method": {"mn": {"model": {"T": -3}}}}, "by_method.mn.model.T = -3"),
        ({"by_method": {"nm": {}}}, "by_method.nm = 'nm'"),
        ({"alternatives": {"short": {"methods": []}}}, "alternatives.short.methods = []"),
        ({"seeds": [0, -1]}, "seeds[1] = -1"),
    ],
    ids=lambda part: part if isinstance(part, str) else "",
)
def test_what_is_wrong_inside_lists_and_mappings_is_named_whole(
    project: Path, change: dict[str, Any], told: str
) -> None:
    yaml = YAML()
    path = project / "recipes.yaml"
    content = yaml.load(path.read_text(encoding="utf-8"))
    content["diabetes"].update(change)
    with path.open("w", encoding="utf-8") as file:
        yaml.dump(content, file)
    with pytest.raises(MNError, match=re.escape(f"diabetes.{told}")) as caught:
        plan(project, "diabetes")
    assert "\n" not in str(caught.value)


def test_every_parameter_is_one_of_a_stage() -> None:
    """What no stage names could be changed without anything being computed again."""
    stages = read_yaml(ROOT / "dvc.yaml")["stages"].values()
    named = [stage.get("do", stage).get("params", []) for stage in stages]
    tracked = {key for params in named for key in params if isinstance(key, str)}
    assert tracked == set(read_yaml(ROOT / "params.yaml"))


def test_missing_file_says_where_to_be(tmp_path: Path) -> None:
    with pytest.raises(MNError, match="run this from the project's root"):
        read_params(tmp_path)
