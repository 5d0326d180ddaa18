"""Training with a dictionary of training rows, and with rows that count more than others."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor
from torch.nn import functional as F

from mn.data.feed import epoch_order
from mn.data.loader import Batch, Loader
from mn.data.split import Part, SplitData
from mn.engine.build import ModelShape, build_model
from mn.engine.config import RunConfig
from mn.engine.event import Event
from mn.engine.fit import SNAPSHOTS, WEIGHTS
from mn.engine.interrupt import Interrupted
from mn.engine.learners import task_loss
from mn.engine.modelfile import load_model
from mn.errors import MNError
from mn.nn import MetaNeighborhoods
from tests import reference
from tests.mn.engine.make import assert_equal_weights, history, make_config, make_data, run

STILL = 1e-12  # a learning rate at which nothing moves


def rows_config(regression: bool = False, **changes: Any) -> RunConfig:
    """A run whose dictionary starts from rows; ``changes`` of the dictionary, or else of the training."""
    own = {"init", "similarity", "dropout", "alpha_init", "T", "metric", "values"}
    training = {name: value for name, value in changes.items() if name not in own}
    config = make_config(regression=regression, **training)
    assert config.dictionary is not None
    settings = {"init": "rows", **{name: value for name, value in changes.items() if name in own}}
    return config.model_copy(update={"dictionary": config.dictionary.model_copy(update=settings)})


def noise() -> SplitData:
    """Rows whose targets nothing tells."""
    data = make_data(regression=True)
    y = torch.randn(30, 1, generator=torch.Generator().manual_seed(1))
    return replace(data, train=Part(data.train.x, y))


def model_at(output: Path, iteration: int, config: RunConfig, data: SplitData) -> MetaNeighborhoods:
    """The model as it was then."""
    kept, prefix = load_file(output / SNAPSHOTS), f"{iteration}/"
    model = build_model(config, ModelShape.of(data))
    model.load_state_dict({n.removeprefix(prefix): t for n, t in kept.items() if n.startswith(prefix)})
    assert isinstance(model, MetaNeighborhoods)
    return model


# --- a dictionary of rows


@pytest.mark.parametrize("regression", [False, True], ids=["classification", "regression"])
def test_it_starts_from_rows_of_the_training_part(tmp_path: Path, regression: bool) -> None:
    config, data = rows_config(regression, epochs=1, snapshots=[0]), make_data(regression=regression)
    dictionary = model_at(run(tmp_path, config, data), 0, config, data).dictionary
    rows = dictionary.origins
    assert rows is not None
    assert len(set(rows.tolist())) == 6
    assert torch.equal(dictionary.keys, data.train.x[rows])
    if regression:
        assert torch.equal(dictionary.values, data.train.y[rows])
    else:
        assert torch.equal(dictionary.values.argmax(1), data.train.y[rows])


def test_the_draw_is_the_seeds(tmp_path: Path) -> None:
    data = make_data()
    drawn = [
        load_file(run(tmp_path / str(i), rows_config(seed=seed, epochs=1), data) / WEIGHTS)
        for i, seed in enumerate((0, 0, 1))
    ]
    first, again, other = (weights["model.dictionary.origins"] for weights in drawn)
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_the_network_starts_as_it_does_without_a_dictionary(tmp_path: Path) -> None:
    data = make_data(regression=True)
    settings = {"regression": True, "epochs": 1, "snapshots": [0]}
    vanilla = load_file(run(tmp_path / "vanilla", make_config("vanilla", **settings), data) / SNAPSHOTS)
    rows = load_file(run(tmp_path / "rows", rows_config(**settings), data) / SNAPSHOTS)
    assert [name for name in vanilla if not torch.equal(vanilla[name], rows[name])] == []


def test_a_single_training_row_is_refused(tmp_path: Path) -> None:
    data = make_data()
    one = replace(data, train=Part(data.train.x[:1], data.train.y[:1]))
    with pytest.raises(MNError, match="made: init = rows needs two training rows; it has 1"):
        run(tmp_path, rows_config(), one)


@pytest.mark.parametrize("S", [30, 70], ids=["every row once", "rows repeated"])
def test_no_row_is_adapted_by_itself(tmp_path: Path, S: int) -> None:
    """The loss of an epoch is the reference's with each row's own entries struck out, and not with them."""
    data = noise()
    config = rows_config(True, S=S, dropout=0.0, T=0.05, similarity="euclidean", alpha_init=0.05, epochs=1,
                         lr=STILL, lr_drops=[], snapshots=[0])  # fmt: skip
    output = run(tmp_path, config, data)
    model = model_at(output, 0, config, data)
    x, y, of = data.train.x, data.train.y, model.dictionary
    assert of.origins is not None
    own = torch.arange(30)[:, None] == of.origins
    seen = reference.attend(x, of.keys, "euclidean", 0.05)
    struck = seen.masked_fill(own, 0)
    losses = [
        F.mse_loss(
            reference.adapted_mlp(
                x, of.keys, of.values, [(layer.weight, layer.bias) for layer in model.head.layers],
                alpha=model.alpha(), attention=ω,
            ),
            y,
        ).item()
        for ω in (struck / struck.sum(1, keepdim=True), seen)
    ]  # fmt: skip
    assert losses[0] > 1.2 * losses[1], "its own target would tell"
    assert history(output)[0]["train_loss"] == pytest.approx(losses[0], rel=1e-4)


@pytest.mark.parametrize("dropout_per", ["batch", "instance"])
def test_training_on_noise_does_not_learn_to_look_itself_up(tmp_path: Path, dropout_per: str) -> None:
    """Only the dictionary and the rate learn: fitting noise would take a row's own entry."""
    data = noise()
    config = rows_config(
        True, S=30, dropout=0.2, T=0.05, similarity="euclidean", alpha_init=0.05, epochs=8, lr=1e-5,
        lr_drops=[], alpha_lr=1000.0, dropout_per=dropout_per,
    )  # fmt: skip
    rows = history(run(tmp_path, config, data))
    assert rows[-1]["train_loss"] > 0.8 * data.train.y.var().item()


@pytest.mark.parametrize("dropout_per", ["batch", "instance"])
@pytest.mark.parametrize("S", [6, 40], ids=["fewer than rows", "more than rows"])
def test_a_stopped_run_goes_on_to_the_same_weights(tmp_path: Path, S: int, dropout_per: str) -> None:
    config, data = rows_config(True, S=S, dropout_per=dropout_per, dropout=0.9, metric="learned"), noise()
    undisturbed = run(tmp_path / "a", config, data)
    folder = tmp_path / "b"
    folder.mkdir()

    def stop(event: Event) -> None:
        if event.epoch == 2:
            (folder / "stop").touch()

    with pytest.raises(Interrupted):
        run(folder, config, data, stop)
    (folder / "stop").unlink()
    resumed = run(folder, config, data)
    assert_equal_weights(undisturbed, resumed)
    assert history(undisturbed) == history(resumed)


@pytest.mark.parametrize("keep", ["best", "last"])
def test_the_file_of_a_model_says_which_rows_its_entries_started_as(tmp_path: Path, keep: str) -> None:
    config, data = rows_config(S=10, keep=keep, lr=STILL, epochs=1), make_data()
    output = run(tmp_path, config, data)
    saved = load_file(output / WEIGHTS)["model.dictionary.origins"]
    model = load_model(output / WEIGHTS).model
    assert isinstance(model, MetaNeighborhoods)
    assert model.dictionary.origins is not None
    assert torch.equal(model.dictionary.origins, saved)
    torch.testing.assert_close(model.dictionary.keys, data.train.x[saved])


def test_a_random_dictionary_has_no_rows_in_its_file(tmp_path: Path) -> None:
    assert "model.dictionary.origins" not in load_file(
        run(tmp_path, make_config(epochs=1), make_data()) / WEIGHTS
    )


# --- the rows of a batch


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("mapped", [False, True], ids=["copied", "by rows"])
def test_rows_of_a_batch_are_places_in_the_part(mapped: bool, workers: int) -> None:
    """Over several blocks, and in a part whose inputs lie elsewhere in the whole set."""
    rows = torch.randperm(150, generator=torch.Generator().manual_seed(0))[:100]
    x = torch.arange(150.0).unsqueeze(1)
    part = Part(x, rows, rows) if mapped else Part(x[rows], rows)
    loader = Loader(part, batch_size=3, seed=4, workers=workers)
    batches = list(loader.epoch(1))
    for batch in batches:
        assert torch.equal(rows[batch.rows], batch.y)
        assert torch.equal(batch.x, x[rows[batch.rows]])
    seen = torch.cat([batch.rows for batch in batches])
    assert torch.equal(seen, epoch_order(100, seed=4, epoch=1))
    assert torch.equal(torch.cat([b.rows for b in loader.epoch(1, start=20)]), seen[60:])


def test_a_share_of_a_batch_keeps_its_rows_and_weights() -> None:
    x = torch.arange(5.0)
    share = Batch(x.unsqueeze(1), x, torch.tensor([4, 2, 0, 3, 1]), 2 * x).part(slice(1, 3))
    assert share.rows.tolist() == [2, 0]
    assert share.weights is not None
    assert (share.y.tolist(), share.weights.tolist()) == ([1.0, 2.0], [2.0, 4.0])


# --- rows that count more than others


def outputs_and_targets(regression: bool) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    out = torch.randn(4, 3, generator=generator)
    return out, torch.randn(4, 3, generator=generator) if regression else torch.tensor([0, 2, 1, 2])


@pytest.mark.parametrize("regression", [False, True], ids=["classification", "regression"])
def test_a_weight_is_how_often_a_row_is_there(regression: bool) -> None:
    out, y = outputs_and_targets(regression)
    times = torch.tensor([2, 0, 1, 3])
    repeated = task_loss(out.repeat_interleave(times, 0), y.repeat_interleave(times, 0))
    torch.testing.assert_close(task_loss(out, y, times.float()), repeated)


@pytest.mark.parametrize("regression", [False, True], ids=["classification", "regression"])
def test_weights_of_one_change_no_loss(regression: bool) -> None:
    out, y = outputs_and_targets(regression)
    torch.testing.assert_close(task_loss(out, y, torch.ones(4)), task_loss(out, y))


@pytest.mark.parametrize("regression", [False, True], ids=["classification", "regression"])
def test_a_weight_multiplies_the_gradient_of_its_row(regression: bool) -> None:
    out, y = outputs_and_targets(regression)
    weights = torch.tensor([2.0, 0.0, 1.0, 0.5])
    out.requires_grad_()
    (plain,) = torch.autograd.grad(task_loss(out, y), out)
    (weighted,) = torch.autograd.grad(task_loss(out, y, weights), out)
    torch.testing.assert_close(weighted, weights[:, None] * plain)


def weighted(data: SplitData, weights: Tensor) -> SplitData:
    return replace(data, train=replace(data.train, weights=weights))


@pytest.mark.parametrize("regression", [False, True], ids=["classification", "regression"])
def test_training_on_weights_of_one_is_training_without(tmp_path: Path, regression: bool) -> None:
    config, data = make_config(regression=regression, optimizer="sgd"), make_data(regression=regression)
    plain = load_file(run(tmp_path / "plain", config, data) / WEIGHTS)
    ones = load_file(run(tmp_path / "ones", config, weighted(data, torch.ones(30))) / WEIGHTS)
    assert plain.keys() == ones.keys()
    for name, tensor in plain.items():
        torch.testing.assert_close(ones[name], tensor, msg=name)


@pytest.mark.parametrize("regression", [False, True], ids=["classification", "regression"])
def test_training_on_rows_without_weight_is_not_to_know_their_targets(
    tmp_path: Path, regression: bool
) -> None:
    """The rest counts double, so that the mean is 1; the targets of the first 15 rows differ."""
    data = weighted(make_data(regression=regression), torch.tensor([0.0, 2.0]).repeat_interleave(15))
    y = data.train.y.clone()
    y[:15] = 1 - y[:15]
    other = replace(data, train=replace(data.train, y=y))
    config = make_config("vanilla", regression=regression)
    ends = [run(tmp_path / name, config, d) for name, d in (("a", data), ("b", other))]
    assert_equal_weights(*ends)


def test_the_loss_that_is_told_is_the_weighted_mean(tmp_path: Path) -> None:
    weights = torch.linspace(0, 2, 30)
    data = weighted(make_data(regression=True), weights)
    config = make_config("vanilla", regression=True, epochs=1, lr=STILL, lr_drops=[])
    output = run(tmp_path, config, data)
    with torch.inference_mode():
        errors = (load_model(output / WEIGHTS)(data.train.x) - data.train.y).square().squeeze(1)
    expected = (weights * errors).mean().item()
    assert history(output)[0]["train_loss"] == pytest.approx(expected, rel=1e-4)
