"""``params.yaml`` and ``recipes.yaml``, checked, and resolved into one configuration per run.

``auto`` in ``params.yaml`` means: what ``recipes.yaml`` says for that data set. :func:`plan` is the only
place where that is looked up; everything after it works on complete :class:`RunConfig` objects. A setting is
taken from the first of these that has it: the variant that ``methods`` names (a row of the paper's Table 3),
``params.yaml``, the recipe that ``recipe`` names, what a search found, the method's own settings, the data
set's.
"""

from __future__ import annotations

import difflib
import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Literal, TypeAlias, TypeVar, cast, get_args

from pydantic import BaseModel, Field, create_model, model_validator

from mn.data.catalog import Entry, read_catalog
from mn.engine.config import (
    BoostingSettings,
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
    TabMSettings,
    TrainSettings,
    WideSettings,
    uses_dictionary,
    uses_ifilm,
)
from mn.errors import MNError
from mn.yamlfile import read_yaml
from pipeline.validation import refuse_setting, validated

PARAMS = Path("params.yaml")
RECIPES = Path("recipes.yaml")
CATALOG = Path("data/catalog.yaml")

METHODS: tuple[str, ...] = get_args(Method)
_WITHOUT_ROUNDS = ("knn", "hgb", "tabm")  # their own code trains them, and chooses for every fold
PAPER = "paper"  # the name of a data set's own settings among its recipes
_METHODS_ALLOWED = f"a list of {', '.join(METHODS)}, or of the variants in {RECIPES}"
_MODEL_GROUPS = (
    NetworkSettings,
    DictionarySettings,
    IFiLMSettings,
    WideSettings,
    MAXLSettings,
    NeighbourSettings,
    BoostingSettings,
    TabMSettings,
)
# What depends on the machine, or on the method, and may be left open in a recipe.
_LEFT_OPEN = ("precision", "device", "jobs", "workers", "channels_last", "compile", "last_relu")
_TRAIN_GROUPS = (TrainSettings, ExecutionSettings)

Seed = Annotated[int, Field(ge=0)]
_Model = TypeVar("_Model", bound=BaseModel)
Found: TypeAlias = Mapping[Method, Mapping[str, Any]]  # what a search found, by method and setting


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


class Round(Change):
    """A round of a search: candidates for a method, of which the one with the least validation loss stays.

    ``model`` and ``train`` are the round's own (a shorter schedule) and do not stay. ``grid`` is a list of
    mappings from settings to values, each standing for all combinations of its values.
    """

    method: Method = Field(description=f"one of {', '.join(METHODS)}")
    also: list[Method] = Field(default=[], description="a list of methods that take over what is found")
    grid: list[dict[str, list[Any]]] = Field(
        min_length=1,
        description="a list of mappings of settings (T, hidden, weight_decay …) to allowed values",
    )
    splits: Literal["first", "all"] = Field(
        default="first", description="first (fold), or all (folds; the mean of their validation losses)"
    )
    apply: bool = Field(default=True, description="true, or false to measure without changing anything")

    @model_validator(mode="after")
    def _allowed(self) -> Round:
        for method in (self.method, *self.also):
            if method in _WITHOUT_ROUNDS:
                raise ValueError(f"{method} has no round of a search: it chooses its settings for every fold")
        for key, values in ((key, values) for grid in self.grid for key, values in grid.items()):
            sections = [one for one in (_ParamsModel, _ParamsTrain) if key in one.model_fields]
            if not sections:
                raise ValueError(f"grid: no setting is called {key}")
            if not values:
                raise ValueError(f"grid: {key} has no values to try")
            for value in values:
                refuse_setting(sections[0], key, value)
        return self


class Alternative(Change):
    """Another recipe for a data set: what differs from its first."""

    methods: list[str] | None = Field(default=None, min_length=1, description=_METHODS_ALLOWED)
    seeds: list[Seed] | None = Field(
        default=None, min_length=1, description="a list of whole numbers of at least 0"
    )
    search: list[Round] | None = Field(default=None, description="a list of rounds")


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
    search: list[Round] = Field(default=[], description="a list of rounds")


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
    search: Literal["auto", "none"] = Field(default="auto", description="auto (what the recipe has) or none")
    data: _ParamsData = Field(default=_ParamsData(), description="a mapping of settings")  # type: ignore[valid-type]
    model: _ParamsModel = Field(default=_ParamsModel(), description="a mapping of settings")  # type: ignore[valid-type]
    train: _ParamsTrain = Field(default=_ParamsTrain(), description="a mapping of settings")  # type: ignore[valid-type]


@dataclass(frozen=True)
class Source:
    """A data set's catalogue entry, and what preprocessing does with it."""

    entry: Entry
    data: DataSettings


@dataclass(frozen=True)
class Candidate:
    """What a round of a search tries, and the runs that tell how good it is."""

    settings: dict[str, Any]
    configs: list[RunConfig]


@dataclass(frozen=True)
class Plan(Source):
    """What is to be done for one data set, with nothing left open."""

    execution: ExecutionSettings
    search: list[Round]  # those whose outcome some run depends on, or is asked for
    params: Params
    recipe: Recipe
    alternative: Alternative

    @property
    def runs(self) -> list[RunConfig]:
        """Every run, with the recipe's values for what a search would choose."""
        return self.final({})

    def final(self, found: Found) -> list[RunConfig]:
        """Every run of the table, with what a search found."""
        return [
            self._config(name, split, seed, found)
            for name in self._names
            for split in self.entry.split_names
            for seed in self._seeds
        ]

    def candidates(self, stage: Round, found: Found) -> list[Candidate]:
        """What a round tries, with the first seed. What params.yaml or the chosen recipe fixes is fixed."""
        fixed = {
            key
            for change in (self.alternative, cast(Any, self.params))
            for section in (change.model, change.train)
            for key, value in section.model_dump().items()
            if value != "auto"
        }
        tried: list[dict[str, Any]] = []
        for grid in stage.grid:
            free = {key: values for key, values in grid.items() if key not in fixed}
            combinations = itertools.product(*free.values()) if free else ()
            tried += [dict(zip(free, values, strict=True)) for values in combinations]
        splits = self.entry.split_names if stage.splits == "all" else self.entry.split_names[:1]
        seed = self._seeds[0]
        return [
            Candidate(
                settings,
                [self._config(stage.method, split, seed, found, stage, settings) for split in splits],
            )
            for settings in tried
        ]

    @property
    def _names(self) -> list[str]:
        chosen = self.alternative.methods or self.recipe.methods
        return chosen if self.params.methods == "auto" else self.params.methods

    @property
    def _seeds(self) -> list[int]:
        chosen = self.alternative.seeds or self.recipe.seeds
        return chosen if self.params.seeds == "auto" else self.params.seeds

    def _config(
        self,
        name: str,
        split: str,
        seed: int,
        found: Found,
        stage: Round | None = None,
        settings: Mapping[str, Any] = MappingProxyType({}),
    ) -> RunConfig:
        from mn.engine.devices import default_precision, resolve_device

        variant = _variant(self.recipe, name, self.entry.name)
        changes: list[Any] = [
            self.recipe.by_method.get(variant.method, Change()),
            _found(found.get(variant.method, {})),
            stage or Change(),
            self.alternative,
            self.params,
            _found(settings),
            variant,
        ]
        model = _overlay(self.recipe.model, *(change.model for change in changes))
        train = _overlay(self.recipe.train, *(change.train for change in changes))
        if train["precision"] == "auto":
            train["precision"] = default_precision(resolve_device(train["device"]))
        config = _run_config(self.entry, name, variant.method, split, seed, model, train)
        if not settings:
            return config
        shown = " ".join(f"{key}={value}" for key, value in settings.items())
        return config.model_copy(update={"variant": f"{variant.method} {shown}"})


def _found(settings: Mapping[str, Any]) -> Change:
    """Settings by name as a change of both sections."""
    sections = {"model": _ParamsModel, "train": _ParamsTrain}
    return Change(
        **{
            name: section(**{key: value for key, value in settings.items() if key in section.model_fields})
            for name, section in sections.items()
        }
    )


def read_params(root: Path) -> Params:
    """``params.yaml`` below ``root``, with its data sets known to the catalogue and named once."""
    params = validated(Params, read_yaml(root / PARAMS), PARAMS)
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
    params, recipe, entry = _read(root, dataset)
    chosen = _alternative(recipe, params.recipe, dataset)
    execution = _overlay(recipe.train, chosen.train, params.train)
    planned = Plan(
        entry=entry,
        data=DataSettings(**_overlay(recipe.data, params.data)),
        execution=_pick(ExecutionSettings, execution),
        search=[],
        params=params,
        recipe=recipe,
        alternative=chosen,
    )
    asked = {run.method for run in planned.runs}  # every setting is checked here
    rounds = [] if params.search == "none" else recipe.search if chosen.search is None else chosen.search
    needed: list[Round] = []
    reached = set(asked)
    for one in reversed(rounds):
        if one.method in asked or (one.apply and reached & {one.method, *one.also}):
            needed.insert(0, one)
            reached.add(one.method)  # its candidates have what earlier rounds found for it
    return replace(planned, search=[one for one in needed if planned.candidates(one, {})])


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
    return params, validated(Recipe, recipes[dataset], RECIPES, prefix=(dataset,)), entry


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
    if method in ("hgb", "tabm"):
        if entry.task != "regression":
            raise MNError(
                f"{PARAMS}: {entry.name}, {method}: a baseline for regression; leave it out of methods"
            )
        if method == "hgb":
            return RunConfig(**base, boosting=_pick(BoostingSettings, model))
        return RunConfig(**base, tabm=_pick(TabMSettings, model))
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
        training |= {"alpha_lr": 1.0, "dictionary_lr": 1.0, "value_lr": 1.0, "metric_lr": 1.0}
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
    # An mlp head takes a table as it is; behind a backbone, and for classes, a linear one is the paper's.
    if network.head == "mlp" and needs_images:
        raise MNError(f"{where}: model.head = mlp does not fit {entry.kind}; use cosine or dot")
    if network.head != "mlp" and entry.task == "regression":
        raise MNError(f"{where}: model.head = {network.head} does not fit regression; use mlp")
    if network.head == "mlp" and not network.hidden:
        raise MNError(f"{where}: model.hidden = []: an mlp head needs at least one hidden layer")
    if entry.task == "regression" and config.method in ("maxl", "wide"):
        raise MNError(f"{where}: {config.method} is a baseline for classification; leave it out of methods")
    if config.ifilm and network.backbone == "identity":
        raise MNError(f"{where}: iFiLM sits behind BatchNorm layers, and backbone identity has none")
    if dictionary is None:
        return
    if dictionary.init == "rows" and needs_images:
        raise MNError(
            f"{where}: model.init = rows needs backbone identity, whose features stay; use gaussian"
        )
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
