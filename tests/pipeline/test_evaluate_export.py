"""What the evaluate and export stages write, checked against the runs they come from."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch

import mn
from mn.data.split import load_split
from mn.nn import MetaNeighborhoods
from pipeline.evaluate import evaluate
from pipeline.export import export
from pipeline.paths import dictionary_folder, evaluation_folder, metrics_file, plots_folder, processed_file
from pipeline.train import train
from tests.conftest import set_params


@pytest.fixture
def trained(prepared: Callable[[str], Path]) -> Callable[..., Path]:
    def through_training(dataset: str, **params: object) -> Path:
        root = prepared(dataset)
        set_params(root, **params)
        train(root, dataset)
        return root

    return through_training


def test_accuracy_is_that_of_the_written_predictions(trained: Callable[..., Path]) -> None:
    root = trained("spiral")
    evaluate(root, "spiral")
    metrics = json.loads((root / metrics_file("spiral")).read_text())
    with h5py.File(root / evaluation_folder("spiral") / "predictions.h5") as file:
        run = file["mn-seed0"]
        for kind, figure in (("adapted", "accuracy"), ("before", "accuracy_before")):
            expected = 100 * np.mean(run[kind][:] == run["truth"][:])
            assert metrics["mn"][figure] == {"mean": pytest.approx(expected)}
    assert "accuracy_before" not in metrics["vanilla"]


def test_mse_is_averaged_over_folds(trained: Callable[..., Path]) -> None:
    root = trained("diabetes")
    evaluate(root, "diabetes")
    metrics = json.loads((root / metrics_file("diabetes")).read_text())
    rows = json.loads((root / evaluation_folder("diabetes") / "runs.json").read_text())
    errors = [row["mse"] for row in rows if row["method"] == "mn"]
    assert len(errors) == 5
    assert metrics["mn"]["mse"]["mean"] == pytest.approx(np.mean(errors))
    assert metrics["mn"]["mse"]["std"] == pytest.approx(np.std(errors, ddof=1))


def test_curves_have_a_row_per_method_and_epoch(trained: Callable[..., Path]) -> None:
    root = trained("spiral")
    evaluate(root, "spiral")
    with (root / plots_folder("spiral") / "curves.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [(row["method"], row["epoch"]) for row in rows] == [
        (method, str(epoch)) for method in ("vanilla", "mn") for epoch in (1, 2, 3)
    ]
    assert all(float(row["val_loss"]) > 0 for row in rows)


def test_regions_are_drawn_at_the_moments_that_were_kept(trained: Callable[..., Path]) -> None:
    root = trained("spiral")
    evaluate(root, "spiral")
    with h5py.File(root / evaluation_folder("spiral") / "regions.h5") as file:
        assert sorted(file["moments"], key=int) == ["0", "2"]
        probability = file["moments/2/probability"][:]
        assert file["moments/2/keys"].shape == (8, 2)
    assert probability.min() >= 0
    assert probability.max() <= 1


def test_only_knn_can_be_evaluated_and_exported(trained: Callable[..., Path]) -> None:
    """A method without a network has no curves, no dictionary and no model file."""
    root = trained("diabetes", methods=["knn"])
    evaluate(root, "diabetes")
    export(root, "diabetes")
    assert json.loads((root / dictionary_folder("diabetes") / "index.json").read_text()) == []


def test_exported_model_predicts_from_raw_rows(trained: Callable[..., Path]) -> None:
    root = trained("diabetes", methods=["mn"])
    export(root, "diabetes")
    folder = root / dictionary_folder("diabetes")
    (row, *_) = json.loads((folder / "index.json").read_text())
    model = mn.load(folder / row["model"])
    with h5py.File(root / processed_file("diabetes")) as file:
        rows = file["splits/fold0/test"][:]
        x, y = file["x"][:][rows], file["y"][:][rows]
        mean, std = file["splits/fold0/y_mean"][:], file["splits/fold0/y_std"][:]
    with torch.inference_mode():
        predicted = model(torch.from_numpy(x)).numpy()
        data = load_split(root / processed_file("diabetes"), "fold0")
        expected = model.model(data.test.x).numpy() * std + mean
    assert predicted.shape == y.shape
    np.testing.assert_allclose(predicted, expected, rtol=1e-4)


def test_exported_dictionary_is_the_models(trained: Callable[..., Path]) -> None:
    root = trained("digits", methods=["mn"])
    export(root, "digits")
    folder = root / dictionary_folder("digits")
    model = mn.load(folder / "mn-seed0.safetensors").model
    assert isinstance(model, MetaNeighborhoods)
    with h5py.File(folder / "mn-seed0.h5") as file:
        np.testing.assert_array_equal(file["keys"][:], model.dictionary.keys.detach().numpy())
        np.testing.assert_allclose(file["values"][:].sum(1), 1, rtol=1e-5)
        attention = file["attention/test"]
        assert attention["weight"][:].sum() == pytest.approx(1)
        effective = attention["effective"][:]
        assert attention["nearest"][:].sum() == len(effective)
        assert effective.min() >= 1
        assert effective.max() <= 8 + 1e-6
