"""``params.yaml`` and ``recipes.yaml``, checked, and resolved into one configuration per run.

``auto`` in ``params.yaml`` means: what ``recipes.yaml`` says for that data set. :func:`plan` is the only
place where that is looked up; everything after it works on complete :class:`RunConfig` objects. A setting is
taken from the first of these that has it: the variant that ``methods`` names (a row of the paper's Table 3),
``params.yaml``, the recipe that ``recipe`` names, the method's own settings, the data set's.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, cast, get_args

from pydantic import BaseModel, Field, ValidationError, create_model
from pydantic.fields import FieldInfo

from mn.data.catalog import Entry, read_catalog
from mn.engine.config import (
    Count,
    DictionarySettings,
    ExecutionSettings,
    IFiLMSettings,
    MAXLSettings,
    Method,
    NeighbourSettings,
    NetworkSettings,
    Positive,
    RunConfig,
    Settings,
    TrainSettings,
    WideSettings,
    uses_dictionary,
    uses_ifilm,
)
from mn.errors import MNError
from mn.yamlfile import read_yaml

PARAMS = Path("params.yaml")
RECIPES = Path("recipes.yaml")
CATALOG = Path("data/catalog.yaml")

METHODS: tuple[str, ...] = get_args(Method)
PAPER = "paper"  # the name of a data set's own settings among its recipes
_METHODS_ALLOWED = f"a list of {', '.join(METHODS)}, or of the variants in {RECIPES}"
_MODEL_GROUPS = (
    NetworkSettings,
    DictionarySettings,
    IFiLMSettings,
    WideSettings,
    MAXLSettings,
    NeighbourSettings,
)
# What depends on the machine, or on the method, and may be left open in a recipe.
_LEFT_OPEN = ("precision", "device", "jobs", "workers", "channels_last", "compile", "last_relu")
_TRAIN_GROUPS = (TrainSettings, ExecutionSettings)

Seed = Annotated[int, Field(ge=0)]
_Model = TypeVar("_Model", bound=BaseModel)


class DataSettings(Settings):
    """What preprocessing does with the raw data."""

    rows: Count | Literal["all"] = Field(
        description="all, or how many rows to draw with a fixed seed, a whole number of at least 1"
    )
    limit: Positive | Literal["none"] = Field(
        description="how many standard deviations from the mean a table's inputs may lie, above 0, or none"
    )


def _section(name: str, groups: Iterable[type[Settings]], *, auto: bool) -> type[Settings]:
    """One flat section of a file, holding the fields of several groups.

    With ``auto`` every field also takes the word and defaults to it; without, every field is needed.
    """
    fields: dict[str, Any] = {}
    for group in groups:
        for key, field in group.model_fields.items():
            annotation: Any = field.annotation
            if field.metadata:
                annotation = Annotated[(annotation, *field.metadata)]
            takes_auto = auto or key in _LEFT_OPEN
            fields[key] = (
                annotation | Literal["auto"] if takes_auto else annotation,
                Field(default="auto" if auto else ..., description=field.description),
            )
    return create_model(name, __base__=Settings, **fields)


_RecipeModel = _section("RecipeModel", _MODEL_GROUPS, auto=False)
_RecipeTrain = _section("RecipeTrain", _TRAIN_GROUPS, auto=False)
_ParamsData = _section("ParamsData", (DataSettings,), auto=True)
_ParamsModel = _section("ParamsModel", _MODEL_GROUPS, auto=True)
_ParamsTrain = _section("ParamsTrain", _TRAIN_GROUPS, auto=True)


class Change(Settings):
    """Some settings that differ; ``auto`` is what they differ from."""

    model: _ParamsModel = Field(default=_ParamsModel(), description="a mapping of settings")  # type: ignore[valid-type]
    train: _ParamsTrain = Field(default=_ParamsTrain(), description="a mapping of settings")  # type: ignore[valid-type]


class Variant(Change):
    """A row of a table: a method with settings of its own."""

    method: Method = Field(description=f"one of {', '.join(METHODS)}")


class Alternative(Change):
    """Another recipe for a data set: what differs from its first."""

    methods: list[str] | None = Field(default=None, min_length=1, description=_METHODS_ALLOWED)
    seeds: list[Seed] | None = Field(
        default=None, min_length=1, description="a list of whole numbers of at least 0"
    )


class Recipe(Settings):
    """The settings of one data set in ``recipes.yaml``: complete, with nothing left to ``auto``."""

    methods: list[str] = Field(min_length=1, description=_METHODS_ALLOWED)
    seeds: list[Seed] = Field(min_length=1, description="a list of whole numbers of at least 0")
    data: DataSettings = Field(description="a mapping of settings")
    model: _RecipeModel = Field(description="a mapping of settings")  # type: ignore[valid-type]
    train: _RecipeTrain = Field(description="a mapping of settings")  # type: ignore[valid-type]
    by_method: dict[Method, Change] = Field(default={}, description="a mapping of methods to settings")
    variants: dict[str, Variant] = Field(default={}, description="a mapping of names to method and settings")
    alternatives: dict[str, Alternative] = Field(
        default={}, description="a mapping of names to settings that differ"
    )


class Params(Settings):
    """``params.yaml``: what to run, and every setting that is not the recipe's."""

    datasets: list[str] = Field(min_length=1, description="a list of data sets in the catalogue")
    recipe: str = Field(default="auto", description="auto or the name of a recipe")
    methods: Literal["auto"] | list[str] = Field(
        default="auto", min_length=1, description=f"auto or {_METHODS_ALLOWED}"
    )
    seeds: Literal["auto"] | list[Seed] = Field(
        default="auto",
        min_length=1,
        description="auto or a list of whole numbers of at least 0",
    )
    data: _ParamsData = Field(default=_ParamsData(), description="a mapping of settings")  # type: ignore[valid-type]
    model: _ParamsModel = Field(default=_ParamsModel(), description="a mapping of settings")  # type: ignore[valid-type]
    train: _ParamsTrain = Field(default=_ParamsTrain(), description="a mapping of settings")  # type: ignore[valid-type]


@dataclass(frozen=True)
class Source:
    """A data set's catalogue entry, and what preprocessing does with it."""

    entry: Entry
    data: DataSettings


@dataclass(frozen=True)
class Plan(Source):
    """What is to be done for one data set, with nothing left open."""

    execution: ExecutionSettings
    runs: list[RunConfig]


def read_params(root: Path) -> Params:
    """``params.yaml`` below ``root``, with its data sets known to the catalogue and named once."""
    params = _validate(Params, read_yaml(root / PARAMS), PARAMS)
    catalog = read_catalog(root / CATALOG)
    for dataset in params.datasets:
        if dataset not in catalog:
            raise MNError(_unknown_dataset(f"{PARAMS}: datasets = {dataset}", dataset, catalog))
    _refuse_repeats(params.datasets, "datasets")
    for key in ("methods", "seeds"):
        chosen = getattr(params, key)
        if chosen != "auto":
            _refuse_repeats(chosen, key)
    return params


def source(root: Path, dataset: str) -> Source:
    """What the stages before training need; all parameters are checked, PyTorch is not imported."""
    params, recipe, entry = _read(root, dataset)
    return Source(entry, DataSettings(**_overlay(recipe.data, params.data)))


def plan(root: Path, dataset: str) -> Plan:
    """Resolve everything for one data set: the recipe's values, overlaid with what params.yaml sets."""
    from mn.engine.devices import default_precision, resolve_device

    params, recipe, entry = _read(root, dataset)
    chosen = _alternative(recipe, params.recipe, dataset)
    methods = params.methods if params.methods != "auto" else chosen.methods or recipe.methods
    seeds = params.seeds if params.seeds != "auto" else chosen.seeds or recipe.seeds
    runs: list[RunConfig] = []
    for name in methods:
        variant = _variant(recipe, name, dataset)
        by_method = recipe.by_method.get(variant.method, Change())
        model = _overlay(recipe.model, by_method.model, chosen.model, params.model, variant.model)
        train = _overlay(recipe.train, by_method.train, chosen.train, params.train, variant.train)
        if train["precision"] == "auto":
            train["precision"] = default_precision(resolve_device(train["device"]))
        runs += [
            _run_config(entry, name, variant.method, split, seed, model, train)
            for split in entry.split_names
            for seed in seeds
        ]
    execution = _overlay(recipe.train, chosen.train, params.train)
    return Plan(
        entry=entry,
        data=DataSettings(**_overlay(recipe.data, params.data)),
        execution=_pick(ExecutionSettings, execution),
        runs=runs,
    )


def _variant(recipe: Recipe, name: str, dataset: str) -> Variant:
    """What ``methods`` names: a variant of the recipe's, or a method as it is."""
    if name in recipe.variants:
        return recipe.variants[name]
    if name in METHODS:
        return Variant(method=cast(Method, name))
    known = (*METHODS, *recipe.variants)
    close = difflib.get_close_matches(name, known, n=1)
    hint = f"did you mean {close[0]}? " if close else ""
    raise MNError(f"{PARAMS}: methods = {[name]} is unknown for {dataset}; {hint}allowed: {', '.join(known)}")


def _alternative(recipe: Recipe, name: str, dataset: str) -> Alternative:
    if name in ("auto", PAPER):
        return Alternative()
    if name not in recipe.alternatives:
        raise MNError(
            f"{PARAMS}: recipe = {name} is unknown for {dataset}; "
            f"allowed: auto, {', '.join((PAPER, *recipe.alternatives))}"
        )
    return recipe.alternatives[name]


def _read(root: Path, dataset: str) -> tuple[Params, Recipe, Entry]:
    params = read_params(root)
    entry = find_entry(root, dataset)
    recipes = read_yaml(root / RECIPES)
    if dataset not in recipes:
        raise MNError(f"{RECIPES}: no recipe for {dataset}; add a section {dataset} with all its settings")
    return params, _validate(Recipe, recipes[dataset], RECIPES, prefix=(dataset,)), entry


def find_entry(root: Path, dataset: str) -> Entry:
    """A data set's catalogue entry, or an error that names those there are."""
    catalog = read_catalog(root / CATALOG)
    if dataset not in catalog:
        raise MNError(_unknown_dataset(f"data set {dataset}", dataset, catalog))
    return catalog[dataset]


def _run_config(
    entry: Entry,
    name: str,
    method: Method,
    split: str,
    seed: int,
    model: dict[str, Any],
    train: dict[str, Any],
) -> RunConfig:
    """Give a method the groups it uses, and set what it does not use to one fixed value."""
    base: dict[str, Any] = {"dataset": entry.name, "method": method, "split": split, "seed": seed}
    if name != method:
        base["variant"] = name
    if method == "knn":
        return RunConfig(**base, neighbours=_pick(NeighbourSettings, model))
    network, training = {**model}, {**train}
    if model["last_relu"] == "auto":
        # The paper's baselines with a dot product keep it; a cosine wants features of either sign.
        network["last_relu"] = model["head"] == "dot" and not uses_dictionary(method)
    if model["backbone"] == "identity":
        network["last_relu"] = False
        training["batchnorm"] = "running"
    if model["head"] != "mlp":
        network |= {"hidden": [], "activation": "relu"}
    if train["optimizer"] != "sgd":
        training["momentum"] = 0.0
    if entry.kind != "images":
        training["augment"] = "none"
    if not uses_dictionary(method):
        training |= {"alpha_lr": 1.0, "dictionary_lr": 1.0, "value_lr": 1.0}
    if not train["lr_drops"]:
        training["lr_factor"] = 1.0
    config = RunConfig(
        **base,
        network=_pick(NetworkSettings, network),
        dictionary=_pick(DictionarySettings, model) if uses_dictionary(method) else None,
        ifilm=_pick(IFiLMSettings, model) if uses_ifilm(method) else None,
        wide=_pick(WideSettings, model) if method == "wide" else None,
        maxl=_pick(MAXLSettings, model) if method == "maxl" else None,
        training=_pick(TrainSettings, training),
    )
    _check_fit(entry, config)
    return config


def _check_fit(entry: Entry, config: RunConfig) -> None:
    """Refuse a combination that no model can be built for, before anything is computed."""
    assert config.network is not None
    network, dictionary = config.network, config.dictionary
    where = f"{PARAMS}: {entry.name}, {config.method}"
    needs_images = network.backbone != "identity"
    if needs_images != (entry.kind == "images"):
        wanted = "convnet4, say," if entry.kind == "images" else "identity"
        raise MNError(f"{where}: model.backbone = {network.backbone} does not fit {entry.kind}; use {wanted}")
    if (network.head == "mlp") != (entry.task == "regression"):
        wanted = "mlp" if entry.task == "regression" else "cosine or dot"
        raise MNError(f"{where}: model.head = {network.head} does not fit {entry.task}; use {wanted}")
    if network.head == "mlp" and not network.hidden:
        raise MNError(f"{where}: model.hidden = []: an mlp head needs at least one hidden layer")
    if entry.task == "regression" and config.method in ("maxl", "wide"):
        raise MNError(f"{where}: {config.method} is a baseline for classification; leave it out of methods")
    if config.ifilm and network.backbone == "identity":
        raise MNError(f"{where}: iFiLM sits behind BatchNorm layers, and backbone identity has none")
    if dictionary is None:
        return
    if (dictionary.alpha == "layer") and network.head != "mlp":
        raise MNError(f"{where}: model.alpha = layer needs an mlp head; use scalar or diagonal")
    if (dictionary.alpha == "diagonal") and network.head == "mlp":
        raise MNError(f"{where}: model.alpha = diagonal needs a cosine or dot head; use scalar or layer")


def _overlay(recipe: Settings, *changes: Settings) -> dict[str, Any]:
    """The recipe's values, replaced by what each change sets, the last one first."""
    values: dict[str, Any] = recipe.model_dump()
    for change in changes:
        values |= {key: value for key, value in change.model_dump().items() if value != "auto"}
    return values


def _pick(group: type[_Model], values: dict[str, Any]) -> _Model:
    return group(**{key: values[key] for key in group.model_fields})


def _refuse_repeats(values: list[Any], key: str) -> None:
    for value in values:
        if values.count(value) > 1:
            raise MNError(f"{PARAMS}: {key} names {value} more than once; name it once")


def _unknown_dataset(where: str, name: str, catalog: dict[str, Entry]) -> str:
    close = difflib.get_close_matches(name, catalog, n=1)
    hint = f"did you mean {close[0]}? " if close else ""
    return (
        f"{where}: not in {CATALOG}; {hint}allowed: {', '.join(catalog)}; "
        f"for your own: pipeline download {name} --from FILE_OR_FOLDER"
    )


def _validate(model: type[_Model], content: Any, path: Path, prefix: tuple[str, ...] = ()) -> _Model:
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
    allowed = field.description if field else "a mapping of settings"
    auto = " (or auto)" if field and _takes_auto(field) and "auto" not in (allowed or "") else ""
    if first["type"] == "missing":
        return f"{path}: {key} is missing; needed: {allowed}{auto}"
    return f"{path}: {key} = {_short(first['input'])} is not allowed; needed: {allowed}{auto}"


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
        if isinstance(current, type) and issubclass(current, BaseModel):
            siblings = list(current.model_fields)
            keys.append(str(part))
            field = current.model_fields.get(str(part))
            current = field.annotation if field else None
        elif isinstance(part, int):
            keys[-1] += f"[{part}]"
    return keys, field, siblings


def _takes_auto(field: FieldInfo) -> bool:
    return bool(field.default == "auto")
