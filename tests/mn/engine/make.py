"""Tiny runs for the tests of the engine: a configuration, data made from a seed, and a folder to train in."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from mn.data.split import Part, SplitData, Standardisation
from mn.engine.config import (
    DictionarySettings,
    ExecutionSettings,
    IFiLMSettings,
    MAXLSettings,
    NetworkSettings,
    RunConfig,
    TrainSettings,
    WideSettings,
    uses_dictionary,
    uses_ifilm,
)
from mn.engine.distributed import Ranks
from mn.engine.event import Event
from mn.engine.fit import HISTORY, WEIGHTS, fit
from mn.engine.interrupt import StopRequest

EXECUTION = ExecutionSettings(
    device="cpu", scheduler="local", jobs=1, threads=1, workers=0, channels_last="auto", compile=False,
    checkpoint_seconds=0.0,
)  # fmt: skip


def make_config(
    method: str = "mn",
    *,
    regression: bool = False,
    backbone: str = "identity",
    head: str = "",
    seed: int = 0,
    S: int = 6,
    dropout_per: str = "batch",
    **training: Any,
) -> RunConfig:
    """A run of a method with all settings small; ``training`` replaces some of the optimiser's."""
    settings = {
        "optimizer": "adamw", "lr": 0.01, "momentum": 0.0, "weight_decay": 0.1, "batch_size": 8, "epochs": 4,
        "lr_drops": [2], "lr_factor": 0.1, "alpha_lr": 1.0, "dictionary_lr": 1.0, "value_lr": 1.0,
        "metric_lr": 1.0, "clip": 10.0, "patience": 0, "augment": "none", "batchnorm": "running",
        "keep": "last", "snapshots": [], "precision": "fp32",
    }  # fmt: skip
    dictionary = DictionarySettings(
        S=S, T=0.2, similarity="cosine", steps=1, alpha="scalar", alpha_init=0.05, alpha_learned=True,
        dropout=0.5, dropout_per=dropout_per, init="gaussian", key_scale=1.0, values="learned",
        metric="fixed",
    )  # fmt: skip
    maxl = MAXLSettings(
        subclasses=2, lookahead="exact", generator_lr=0.01, generator_decay=5e-4, entropy=0.2
    )  # fmt: skip
    head = head or ("mlp" if regression else "cosine")
    return RunConfig(
        dataset="made",
        split="main",
        method=method,  # type: ignore[arg-type]
        seed=seed,
        network=NetworkSettings(
            backbone=backbone,
            last_relu=False,
            head=head,  # type: ignore[arg-type]
            hidden=[5] if head == "mlp" else [],
            activation="relu",
        ),
        dictionary=dictionary if uses_dictionary(method) else None,  # type: ignore[arg-type]
        ifilm=IFiLMSettings(S_l=3) if uses_ifilm(method) else None,  # type: ignore[arg-type]
        wide=WideSettings(S=S) if method == "wide" else None,
        maxl=maxl if method == "maxl" else None,
        training=TrainSettings(**{**settings, **training}),
    )


def make_data(*, regression: bool = False) -> SplitData:
    """30 rows of three numbers, to tell the sign of the first or to find their sum."""
    generator = torch.Generator().manual_seed(0)
    parts = []
    for count in (30, 12, 12):
        x = torch.randn(count, 3, generator=generator)
        y = x.sum(1, keepdim=True) if regression else (x[:, 0] > 0).long()
        parts.append(Part(x, y))
    train, validation, test = parts
    return SplitData(
        task="regression" if regression else "classification",
        kind="table",
        num_classes=0 if regression else 2,
        num_targets=1 if regression else 0,
        standardisation=Standardisation(),
        train=train,
        validation=validation,
        test=test,
    )


def make_images(rows: int = 23) -> SplitData:
    """Noise of 8×8 pixels, brighter in the upper or in the lower half: two classes."""
    generator = torch.Generator().manual_seed(0)
    parts = []
    for count in (rows, 12, 12):
        x = torch.randint(200, (count, 1, 8, 8), generator=generator, dtype=torch.uint8)
        y = torch.randint(2, (count,), generator=generator)
        for image, label in zip(x, y.tolist(), strict=True):
            image[:, 4 * label : 4 * label + 4] += 55
        parts.append(Part(x, y))
    train, validation, test = parts
    return SplitData(
        task="classification",
        kind="images",
        num_classes=2,
        num_targets=0,
        standardisation=Standardisation(),
        train=train,
        validation=validation,
        test=test,
        flip=True,
    )


def run(
    folder: Path,
    config: RunConfig,
    data: SplitData,
    progress: Callable[[Event], None] = lambda _: None,
    execution: ExecutionSettings = EXECUTION,
    stop: StopRequest | None = None,
    ranks: Ranks = Ranks(),  # noqa: B008 (frozen)
) -> Path:
    """Train in a folder, going on from what is in it; gives the folder of the results."""
    output = folder / "output"
    output.mkdir(parents=True, exist_ok=True)
    fit(config, data, folder, output, execution=execution, progress=progress,
        stop=stop or StopRequest(folder / "stop"), ranks=ranks)  # fmt: skip
    return output


def history(output: Path) -> list[dict[str, float]]:
    """The rows of a run's history, but for its speed, which no two runs share."""
    found: list[dict[str, float]] = json.loads((output / HISTORY).read_text())
    assert all(row.pop("rows_per_second") > 0 for row in found)
    return found


def assert_equal_weights(a: Path, b: Path) -> None:
    first, second = load_file(a / WEIGHTS), load_file(b / WEIGHTS)
    assert first.keys() == second.keys()
    assert [name for name in first if not torch.equal(first[name], second[name])] == []
