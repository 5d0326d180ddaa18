"""The settings of one run, complete and checked: what is trained, on what, and how.

A *run* is one (data set, split, method, seed). Its :class:`RunConfig` holds the groups that its method
uses and no other, so that two runs have equal configurations exactly when they compute the same thing:
``vanilla`` has no ``dictionary``, and a change of ``S`` leaves it alone.
"""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from mn.backbone_names import OWN, check_backbone
from mn.errors import MNError

MAIN_SPLIT = "main"  # the split of a data set that has no folds

Method = Literal["vanilla", "vanilla_ifilm", "mn", "mn_ifilm", "maxl", "wide", "knn", "hgb", "tabm"]
Count = Annotated[int, Field(ge=1)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NonNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]


def _backbone(name: str) -> str:
    if name != "identity":
        try:
            check_backbone(name)
        except MNError as error:
            raise ValueError(str(error)) from None
    return name


class Settings(BaseModel):
    """A group of settings. Every field's ``description`` says which values are allowed."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class NetworkSettings(Settings):
    """The network that is adapted, or used as it is."""

    backbone: Annotated[str, AfterValidator(_backbone)] = Field(
        description=f"identity (tables, points), {', '.join(OWN)} or torchvision:NAME (torchvision:resnet18)"
    )
    last_relu: bool = Field(
        description="true, false or auto: keep the ReLU before the last pooling (auto: dot-product baselines)"
    )
    head: Literal["cosine", "dot", "mlp"] = Field(description="cosine, dot or mlp")
    hidden: list[Count] = Field(
        description="the widths of an mlp head's hidden layers, whole numbers of at least 1"
    )
    activation: Literal["relu", "tanh"] = Field(description="relu or tanh (mlp head)")


class DictionarySettings(Settings):
    """The learned neighbours and the step taken on them (Sec. 2 of the paper)."""

    S: Count = Field(description="the dictionary's size, a whole number of at least 1")
    T: Positive = Field(description="the attention's temperature, a number above 0")
    similarity: Literal["cosine", "euclidean", "rms"] = Field(
        description="cosine, euclidean, or rms (the Euclidean distance over √d)"
    )
    steps: Count = Field(description="inner steps, a whole number of at least 1")
    alpha: Literal["scalar", "diagonal", "layer"] = Field(
        description="scalar, diagonal (one rate per feature) or layer (one per layer of an mlp head)"
    )
    alpha_init: Positive = Field(description="the inner rate at the start, a number above 0")
    alpha_learned: bool = Field(description="true or false")
    dropout: Annotated[float, Field(ge=0, lt=1)] = Field(
        description="the share of entries left out in training, from 0 to below 1"
    )
    dropout_per: Literal["batch", "instance"] = Field(description="batch or instance")
    init: Literal["gaussian", "uniform", "rows"] = Field(
        description="gaussian or uniform (random keys and values), or rows (both from training rows)"
    )
    key_scale: Positive = Field(
        description="keys' standard deviation (gaussian) or half-width (uniform), a number above 0"
    )
    values: Literal["learned", "fixed"] = Field(description="learned or fixed")
    metric: Literal["fixed", "learned"] = Field(
        description="fixed, or learned (a factor for each feature in the similarity)"
    )


class IFiLMSettings(Settings):
    """The small dictionaries behind every BatchNorm."""

    S_l: Count = Field(description="entries per iFiLM layer, a whole number of at least 1")


class WideSettings(Settings):
    """The dictionary whose number of parameters an extra layer is given instead (Appendix C)."""

    S: Count = Field(description="the dictionary's size, a whole number of at least 1")


class MAXLSettings(Settings):
    """Meta auxiliary learning: a generator of finer labels, trained through a look-ahead step."""

    subclasses: Count = Field(description="auxiliary classes per class, a whole number of at least 1")
    lookahead: Literal["exact", "finite"] = Field(
        description="exact (second order by autograd) or finite (central differences)"
    )
    generator_lr: Positive = Field(description="the generator's learning rate, a number above 0")
    generator_decay: NonNegative = Field(description="the generator's weight decay, at least 0")
    entropy: NonNegative = Field(description="the weight of the labels' entropy, at least 0")


class NeighbourSettings(Settings):
    """k-nearest-neighbours; k and the weighting are chosen on validation data."""

    k: list[Count] = Field(min_length=1, description="the candidates for k, whole numbers of at least 1")


class BoostingSettings(Settings):
    """Gradient boosting; rate, leaves and the number of trees are chosen on validation data."""

    rates: list[Positive] = Field(
        min_length=1, description="the candidates for the learning rate, numbers above 0"
    )
    leaves: list[Annotated[int, Field(ge=2)]] = Field(
        min_length=1, description="the candidates for a tree's leaves, whole numbers of at least 2"
    )
    trees: Count = Field(description="how many trees at most, a whole number of at least 1")


class TabMSettings(Settings):
    """TabM: the size of the ensemble, and how long it may train."""

    members: Count = Field(description="members of the ensemble, a whole number of at least 1")
    blocks: Count = Field(description="hidden layers, a whole number of at least 1")
    units: Count = Field(description="their width, a whole number of at least 1")
    max_epochs: Count = Field(description="epochs at most, a whole number of at least 1")
    epochs_without: Count = Field(
        description="epochs without a better validation loss before stopping, at least 1"
    )


class TrainSettings(Settings):
    """Optimiser and schedule."""

    optimizer: Literal["adam", "adamw", "sgd"] = Field(description="adam, adamw or sgd")
    lr: Positive = Field(description="the learning rate, a number above 0")
    momentum: Annotated[float, Field(ge=0, lt=1)] = Field(description="from 0 to below 1 (sgd only)")
    weight_decay: NonNegative = Field(
        description="PyTorch's weight decay, multiplied by lr there, a number of at least 0"
    )
    batch_size: Count = Field(description="a whole number of at least 1")
    epochs: Count = Field(description="a whole number of at least 1")
    lr_drops: list[Count] = Field(
        description="the epochs after which lr, and with it weight decay, is multiplied by lr_factor"
    )
    lr_factor: Annotated[float, Field(gt=0, le=1)] = Field(description="above 0, at most 1")
    alpha_lr: Positive = Field(description="alpha's learning rate over lr, a number above 0")
    dictionary_lr: Positive = Field(description="the dictionary's learning rate over lr, a number above 0")
    value_lr: Positive = Field(
        description="the values' learning rate over that of the dictionary, a number above 0"
    )
    metric_lr: Positive = Field(description="the metric's learning rate over lr, a number above 0")
    clip: NonNegative = Field(
        description="gradients are clipped to ±clip elementwise, a number of at least 0 (0 = never)"
    )
    patience: Annotated[int, Field(ge=0)] = Field(
        description="epochs without a better validation score before stopping, at least 0 (0 = never)"
    )
    augment: Literal["none", "light", "paper"] = Field(
        description="none, light (crop, flip) or paper (crop, flip, AutoAugment, cutout); images only"
    )
    batchnorm: Literal["running", "recomputed"] = Field(
        description="running (averages from training) or recomputed (from training rows, before evaluating)"
    )
    keep: Literal["best", "last"] = Field(description="best (weights of the best validation score) or last")
    snapshots: list[Annotated[int, Field(ge=0)]] = Field(
        description="the iterations whose weights are kept for figures, whole numbers of at least 0"
    )
    precision: Literal["fp32", "bf16"] = Field(
        description="fp32, bf16, or auto (bf16 autocast on CUDA, fp32 elsewhere)"
    )


class ExecutionSettings(Settings):
    """Where and how a run is computed. No part of its identity: it changes nothing but rounding."""

    device: Literal["auto", "cpu", "cuda"] = Field(description="auto, cpu or cuda")
    scheduler: Literal["local"] | Annotated[str, Field(pattern=r"^[a-z]+://.+")] = Field(
        description="local (processes of this machine) or a Dask scheduler's address, tcp://HOST:PORT"
    )
    workers: Annotated[int, Field(ge=0)] | Literal["auto"] = Field(
        description="threads that make batches ahead, at least 0, or auto (CPU: 0, CUDA: 2)"
    )
    channels_last: bool | Literal["auto"] = Field(description="true, false or auto (images: true)")
    compile: bool | Literal["auto"] = Field(
        description="torch.compile for the backbone: true, false or auto (CUDA: true)"
    )
    jobs: Count | Literal["auto"] = Field(
        description="runs computed at a time, a whole number of at least 1, or auto (CPU: one per core)"
    )
    threads: Count = Field(description="PyTorch's threads per run, a whole number of at least 1")
    checkpoint_seconds: NonNegative = Field(
        description="seconds between checkpoints, a number of at least 0 (0 = after every step)"
    )


class RunConfig(Settings):
    """One run. ``None`` marks a group that its method does not use."""

    dataset: str
    split: str
    method: Method
    seed: Annotated[int, Field(ge=0)]
    network: NetworkSettings | None = None
    dictionary: DictionarySettings | None = None
    ifilm: IFiLMSettings | None = None
    wide: WideSettings | None = None
    maxl: MAXLSettings | None = None
    neighbours: NeighbourSettings | None = None
    boosting: BoostingSettings | None = None
    tabm: TabMSettings | None = None
    training: TrainSettings | None = None
    # The row of a table that the run stands in, if its method has several: no part of the identity, so that
    # a run which stands in two rows is computed once.
    variant: str | None = None

    @property
    def row(self) -> str:
        """The row of a table that the run stands in: its variant's name, or else its method's."""
        return self.variant or self.method

    @property
    def name(self) -> str:
        """The run's name within its data set's results: ``mn-seed0``, ``vanilla-fold3-seed0``."""
        parts = [self.row, f"seed{self.seed}"]
        if self.split != MAIN_SPLIT:
            parts.insert(1, self.split)
        return "-".join(parts)

    def identity(self) -> dict[str, Any]:
        """Everything here that decides the result, as plain data: what is hashed and stored."""
        return self.model_dump(exclude_none=True, exclude={"variant"})

    @classmethod
    def from_identity(cls, identity: dict[str, Any]) -> RunConfig:
        return cls.model_validate_json(json.dumps(identity))


def uses_dictionary(method: Method) -> bool:
    return method in ("mn", "mn_ifilm")


def uses_ifilm(method: Method) -> bool:
    return method in ("vanilla_ifilm", "mn_ifilm")
