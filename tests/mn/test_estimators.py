"""The scikit-learn estimators: what scikit-learn asks of them, and what they promise besides."""

from __future__ import annotations

import copy
import doctest
import json
import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from sklearn.base import clone
from sklearn.exceptions import DataConversionWarning, NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import estimator_checks_generator, parametrize_with_checks

import mn
import mn.estimators
from mn.errors import MNError
from mn.estimators import MNClassifier, MNRegressor
from mn.tablerows import hold_out

SMALL: dict[str, Any] = {"hidden": (16,), "S": 20, "lr": 0.03, "batch_size": 64, "max_epochs": 20}
TINY: dict[str, Any] = {"hidden": (8,), "S": 10, "lr": 0.02, "max_epochs": 3, "random_state": 0}


@parametrize_with_checks([MNRegressor(**SMALL), MNClassifier(**SMALL)])
def test_scikit_learn_checks(estimator: Any, check: Any) -> None:
    check(estimator)


@pytest.mark.skipif(
    not any("array_api" in check.func.__name__ for _, check in estimator_checks_generator(MNRegressor())),
    reason="this scikit-learn has no such check for estimators that take NumPy arrays alone",
)
def test_scikit_learns_check_of_other_arrays() -> None:
    """The one that scikit-learn skips unless SciPy is told to take them, before it is imported."""
    code = f"""
from sklearn.utils.estimator_checks import estimator_checks_generator
from mn import MNClassifier, MNRegressor
for kind in (MNRegressor, MNClassifier):
    (check,) = [c for e, c in estimator_checks_generator(kind(**{SMALL})) if "array_api" in c.func.__name__]
    check(kind(**{SMALL}))
"""
    environment = {**os.environ, "SCIPY_ARRAY_API": "1"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def table(rows: int = 60, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Rows of three numbers, in units of their own, and a target."""
    random = np.random.RandomState(seed)
    X = random.normal(size=(rows, 3)) * [1, 10, 0.1] + [0, 100, 5]
    return X, 50 + 7 * X[:, 0] + X[:, 1]


def labels(y: np.ndarray) -> np.ndarray:
    return np.array(["low", "middle", "high"])[np.digitize(y, np.quantile(y, [0.3, 0.7]))]


def made(kind: str, **params: Any) -> tuple[Any, np.ndarray, np.ndarray]:
    """An estimator with the rows to fit it on."""
    X, y = table()
    if kind == "regressor":
        return MNRegressor(**TINY | params), X, y
    return MNClassifier(**TINY | params), X, labels(y)


def outputs(estimator: Any, X: np.ndarray) -> np.ndarray:
    answer: np.ndarray = getattr(estimator, "predict_proba", estimator.predict)(X)
    return answer


both = pytest.mark.parametrize("kind", ["regressor", "classifier"])


def test_examples_run() -> None:
    assert doctest.testmod(mn.estimators).failed == 0


def test_importing_the_package_does_not_import_scikit_learn() -> None:
    code = "import mn, sys; assert 'MNRegressor' in mn.__all__ and 'sklearn' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
    assert mn.MNRegressor is MNRegressor
    assert mn.MNClassifier is MNClassifier


# What is refused, and how.


@both
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"S": 0}, "'S' parameter .* range"),
        ({"S": 2.5}, "'S' parameter"),
        ({"T": 0}, "'T' parameter"),
        ({"T": np.inf}, "'T' parameter"),
        ({"similarity": "near"}, "'similarity' parameter"),
        ({"alpha_kind": "diagonal"}, "'alpha_kind' parameter"),
        ({"alpha_init": 0.0}, "'alpha_init' parameter"),
        ({"dropout": 1}, "'dropout' parameter"),
        ({"init": "zeros"}, "'init' parameter"),
        ({"activation": "gelu"}, "'activation' parameter"),
        ({"hidden": 16}, "'hidden' parameter"),
        ({"hidden": (16, 0)}, "hidden: expected widths of at least 1"),
        ({"hidden": (1.5,)}, "hidden: expected widths of at least 1"),
        ({"lr": float("nan")}, "'lr' parameter"),
        ({"lr_drops": 3}, "'lr_drops' parameter"),
        ({"lr_drops": (0,)}, "lr_drops: expected epochs of at least 1"),
        ({"weight_decay": -1}, "'weight_decay' parameter"),
        ({"batch_size": 0}, "'batch_size' parameter"),
        ({"max_epochs": 0}, "'max_epochs' parameter"),
        ({"patience": -1}, "'patience' parameter"),
        ({"validation_fraction": 1.0}, "'validation_fraction' parameter"),
        ({"limit": 0}, "'limit' parameter"),
        ({"random_state": "x"}, "'random_state' parameter"),
        ({"n_jobs": 0}, "n_jobs"),
        ({"device": "tpu"}, "'device' parameter"),
    ],
)
def test_bad_parameters_are_named_in_one_line(kind: str, change: dict[str, Any], message: str) -> None:
    estimator, X, y = made(kind, **change)
    with pytest.raises(ValueError, match=message) as error:
        estimator.fit(X, y)
    assert "\n" not in str(error.value)


@both
@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda X, y: (np.where(X.max() - 1e-9 < X, np.nan, X), y), "contains NaN"),
        (lambda X, y: (np.where(X.max() - 1e-9 < X, np.inf, X), y), "contains infinity"),
        (lambda X, y: (X[:0], y[:0]), r"0 sample\(s\)"),
        (lambda X, y: (X[:1], y[:1]), r"1 sample\(s\).* minimum of 2 is required"),
        (lambda X, y: (X[:, :0], y), r"0 feature\(s\)"),
        (lambda X, y: (X[:, 0], y), "Expected 2D array, got 1D array"),
        (lambda X, y: (X, y[:-1]), "inconsistent numbers of samples"),
        (lambda X, _: (X, None), "requires y to be passed"),
        (lambda X, y: (np.full(X.shape, "a"), y), "could not convert string to float"),
        (lambda X, y: (X * 1e300, y), "X: the values of column 0 are too large"),
    ],
)
def test_bad_rows_get_scikit_learns_message(kind: str, spoil: Any, message: str) -> None:
    estimator, X, y = made(kind)
    with pytest.raises(ValueError, match=message):
        estimator.fit(*spoil(X, y))


def test_targets_of_the_wrong_kind() -> None:
    X, y = table()
    with pytest.raises(ValueError, match="could not convert string to float"):
        MNRegressor(**TINY).fit(X, labels(y))
    with pytest.raises(ValueError, match="Unknown label type: continuous"):
        MNClassifier(**TINY).fit(X, y)
    with pytest.raises(ValueError, match=r"y should be a 1d array|multioutput"):
        MNClassifier(**TINY).fit(X, np.column_stack([labels(y)] * 2))
    with pytest.warns(DataConversionWarning, match="column-vector"):
        column = MNClassifier(**TINY).fit(X, labels(y)[:, None])
    assert column.predict(X).shape == (60,)


@both
@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (np.zeros(60), "[Ww]eights|sample_weight"),
        (np.r_[-1, np.ones(59)], "[Nn]egative"),
        (np.r_[np.nan, np.ones(59)], "NaN"),
        (np.ones(59), "sample_weight"),
    ],
)
def test_bad_weights(kind: str, weights: np.ndarray, message: str) -> None:
    estimator, X, y = made(kind)
    with pytest.raises(ValueError, match=message):
        estimator.fit(X, y, sample_weight=weights)


@both
def test_bad_calls_after_and_before_fit(kind: str) -> None:
    estimator, X, y = made(kind)
    for call in (estimator.predict, estimator.explain, lambda _: estimator.save("nowhere")):
        with pytest.raises(NotFittedError):
            call(X)
    estimator.fit(X, y)
    with pytest.raises(ValueError, match=r"has 2 features, but .* is expecting 3"):
        estimator.predict(X[:, :2])
    with pytest.raises(ValueError, match="k: expected at least 1, got 0"):
        estimator.explain(X, k=0)


@both
def test_bad_validation_sets(kind: str) -> None:
    estimator, X, y = made(kind)
    with pytest.raises(ValueError, match="y_val is missing"):
        estimator.fit(X, y, X_val=X)
    with pytest.raises(ValueError, match="X_val is missing"):
        estimator.fit(X, y, y_val=y)
    with pytest.raises(ValueError, match="has 2 features"):
        estimator.fit(X, y, X_val=X[:, :2], y_val=y)
    strange = np.column_stack([y, y]) if kind == "regressor" else np.full(60, "other")
    with pytest.raises(ValueError, match="y_val: expected"):
        estimator.fit(X, y, X_val=X, y_val=strange)


@both
def test_a_loss_that_diverges_is_told_in_an_estimators_words(kind: str) -> None:
    estimator, X, y = made(kind, alpha_init=1e30)
    with pytest.raises(MNError, match=r"the loss became (nan|inf).*; lower lr or alpha_init$"):
        estimator.fit(X, y)


@pytest.mark.skipif(torch.cuda.is_available(), reason="has a CUDA device")
def test_a_missing_device_is_named() -> None:
    estimator, X, y = made("regressor", device="cuda")
    with pytest.raises(MNError, match="no CUDA device"):
        estimator.fit(X, y)


# What fits, and what comes out.


@both
def test_what_fit_leaves(kind: str) -> None:
    estimator, X, y = made(kind, max_epochs=30, patience=2, lr=0.1)
    estimator.fit(X, y)
    assert 3 <= estimator.n_iter_ <= 30
    assert len(estimator.loss_curve_) == len(estimator.validation_loss_curve_) == estimator.n_iter_
    assert estimator.best_validation_loss_ in estimator.validation_loss_curve_
    assert estimator.n_features_in_ == 3
    assert estimator.dictionary_rows_.shape == (10,)
    raw = estimator.model_(torch.from_numpy(X)).detach().numpy()  # the network by itself, in float32
    expected = raw[:, 0] if kind == "regressor" else estimator.classes_[raw.argmax(1)]
    if kind == "regressor":
        assert_allclose(estimator.predict(X), expected, rtol=1e-4)
    else:
        assert_array_equal(estimator.predict(X), expected)


def test_the_best_weights_are_kept() -> None:
    X, y = table()
    validation = table(20, seed=1)
    model = MNRegressor(**TINY | {"max_epochs": 15, "lr": 0.2, "patience": 0})
    model.fit(X, y, X_val=validation[0], y_val=validation[1])
    best = min(model.validation_loss_curve_)
    assert best < model.validation_loss_curve_[-1]
    assert model.best_validation_loss_ == best
    errors = (model.predict(validation[0]) - validation[1]) / np.std(y)
    assert_allclose(np.mean(errors**2), best, rtol=1e-4)


def test_learning_rate_falls_after_the_epochs_given() -> None:
    X, y = table()
    plain, falling = (
        MNRegressor(**TINY | {"lr_drops": drops, "max_epochs": 4}).fit(X, y) for drops in ((), (2,))
    )
    assert falling.loss_curve_[:2] == plain.loss_curve_[:2]
    assert falling.loss_curve_[3] != plain.loss_curve_[3]
    moved = np.abs(np.diff(falling.validation_loss_curve_))
    assert moved[2] < 0.5 * np.abs(np.diff(plain.validation_loss_curve_))[2]


@both
def test_a_validation_set_that_is_given_is_used(kind: str) -> None:
    estimator, X, y = made(kind)
    given = estimator.fit(X[:40], y[:40], X_val=X[40:], y_val=y[40:])
    weighted = clone(estimator).fit(
        X[:40], y[:40], X_val=X[40:], y_val=y[40:], sample_weight_val=np.arange(20)
    )
    assert given.loss_curve_ == weighted.loss_curve_
    assert given.validation_loss_curve_ != weighted.validation_loss_curve_
    assert set(given.dictionary_rows_) <= set(range(40))


def test_targets_keep_their_shape_and_unit() -> None:
    X, y = table()
    for targets in (y, y[:, None], np.column_stack([y, -1000 * y]), y.astype(np.float32)):
        model = MNRegressor(**TINY | {"max_epochs": 20, "lr": 0.05}).fit(X, targets)
        answer = model.predict(X)
        assert answer.shape == targets.shape
        assert answer.dtype == np.float64
        assert model.score(X, targets) > 0.7
        assert model.explain(X[:4], k=2).values.shape == (4, 2, *targets.shape[1:])


@pytest.mark.parametrize(
    "kinds", [["a", "b"], [3, 7], [True, False], [0.0, 2.0], np.array(["x", "y"], dtype=object)]
)
def test_labels_of_any_kind(kinds: Any, tmp_path: Path) -> None:
    X, y = table()
    coded = np.asarray(kinds)[(y > np.median(y)).astype(int)]
    model = MNClassifier(**TINY | {"max_epochs": 20}).fit(X, coded)
    assert model.score(X, coded) > 0.7
    assert model.predict(X).dtype == coded.dtype
    probabilities = model.predict_proba(X)
    assert probabilities.dtype == np.float64
    assert_allclose(probabilities.sum(1), 1, rtol=1e-12)
    assert_allclose(np.exp(model.predict_log_proba(X)), probabilities, rtol=1e-12)
    model.save(tmp_path / "model")
    again = MNClassifier.load(tmp_path / "model")
    assert again.classes_.dtype == model.classes_.dtype
    assert_array_equal(again.predict(X), model.predict(X))


def test_degenerate_tables() -> None:
    X, y = table(12)
    for constant in (3.5, -1e9, 1e-20):
        model = MNRegressor(**TINY).fit(X, np.full(12, constant))
        assert_allclose(model.predict(X), constant, rtol=1e-10, atol=1e-10)
    one = MNClassifier(**TINY).fit(X, np.full(12, "only"))
    assert set(one.predict(X)) == {"only"}
    assert_array_equal(one.predict_proba(X), np.ones((12, 1)))
    assert_allclose(MNRegressor(**TINY).fit(np.ones((5, 2)), np.ones(5)).predict(np.zeros((1, 2))), 1)
    assert MNRegressor(**TINY).fit(X[:2], y[:2]).explain(X).entries.shape == (12, 2)


def test_a_class_of_one_row_is_trained_on() -> None:
    strata = np.array([0] * 40 + [1] * 2 + [2])
    for seed in range(20):
        chosen = hold_out(strata, 0.5, np.random.RandomState(seed))
        assert abs(chosen.sum() - 21) <= 1
        assert set(strata[~chosen]) == {0, 1, 2}


def test_classes_are_held_out_alike() -> None:
    chosen = hold_out(np.repeat([0, 1], [300, 100]), 0.1, np.random.RandomState(0))
    assert np.bincount(np.repeat([0, 1], [300, 100])[chosen]).tolist() == [30, 10]


@both
@pytest.mark.parametrize("seed", [0, "generator"])
def test_the_same_seed_gives_the_same_result(kind: str, seed: Any) -> None:
    def fit(number: int) -> np.ndarray:
        state = np.random.RandomState(number) if seed == "generator" else number
        estimator, X, y = made(kind, random_state=state)
        return outputs(estimator.fit(X, y), X)

    assert_array_equal(fit(1), fit(1))
    assert not np.array_equal(fit(1), fit(2))


@both
def test_the_order_of_rows_and_columns_in_memory_changes_nothing(kind: str) -> None:
    estimator, X, y = made(kind)
    expected = outputs(estimator.fit(X, y), X)
    order = np.random.RandomState(3).permutation(len(X))
    assert_array_equal(outputs(clone(estimator).fit(np.asfortranarray(X[order]), y[order]), X), expected)


@both
def test_nothing_global_is_disturbed(kind: str, tmp_path: Path) -> None:
    estimator, X, y = made(kind, n_jobs=-1)
    torch.manual_seed(3)
    before = torch.get_rng_state(), np.random.get_state()[1].copy(), torch.get_num_threads()  # type: ignore[index,union-attr]
    estimator.fit(X, y)
    estimator.predict(X)
    estimator.explain(X)
    estimator.save(tmp_path / "model")
    type(estimator).load(tmp_path / "model")
    pickle.loads(pickle.dumps(estimator))  # noqa: S301
    assert torch.equal(torch.get_rng_state(), before[0])
    assert_array_equal(np.random.get_state()[1], before[1])  # type: ignore[index]
    assert torch.get_num_threads() == before[2]


def test_threads_are_put_back_after_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    threads = []

    def fail(*_: Any, **__: Any) -> None:
        threads.append(torch.get_num_threads())
        raise MNError("no")

    monkeypatch.setattr(mn.estimators, "train", fail)
    before = torch.get_num_threads()
    estimator, X, y = made("regressor", n_jobs=before + 1)
    with pytest.raises(MNError):
        estimator.fit(X, y)
    assert threads == [before + 1]
    assert torch.get_num_threads() == before


def test_progress_is_shown_only_if_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    estimator, X, y = made("regressor")
    estimator.fit(X, y)
    assert capsys.readouterr() == ("", "")
    estimator.set_params(verbose=1).fit(X, y)
    shown = capsys.readouterr().out
    assert "MNRegressor" in shown
    assert "epoch 3/3" in shown
    assert "val_loss" in shown


def test_far_inputs_are_limited() -> None:
    estimator, X, y = made("regressor", limit=2.0)
    estimator.fit(X, y)
    far = X[:2] + np.array([1e6, 0, 0])
    assert_array_equal(estimator.predict(far), estimator.predict(far * [1e3, 1, 1]))
    free = clone(estimator).set_params(limit=None).fit(X, y)
    assert np.all(free.predict(far) != free.predict(far * [1e3, 1, 1]))


# Weights.


@both
def test_only_the_ratios_of_weights_matter(kind: str) -> None:
    estimator, X, y = made(kind)
    weights = np.random.RandomState(0).uniform(0.5, 2, len(X))
    plain = outputs(estimator.fit(X, y), X)
    assert_array_equal(outputs(estimator.fit(X, y, sample_weight=np.full(60, 2.0)), X), plain)
    weighted = outputs(estimator.fit(X, y, sample_weight=weights), X)
    assert_array_equal(outputs(estimator.fit(X, y, sample_weight=2 * weights), X), weighted)
    assert not np.array_equal(weighted, plain)


@both
def test_weights_are_numbers_of_copies(kind: str) -> None:
    estimator, X, y = made(kind)
    weights = np.random.RandomState(0).randint(0, 4, len(X))
    expected = outputs(estimator.fit(np.repeat(X, weights, axis=0), np.repeat(y, weights)), X)
    estimator.fit(X, y, sample_weight=weights)
    assert_array_equal(outputs(estimator, X), expected)
    assert (weights[estimator.dictionary_rows_] > 0).all()


def test_weights_reach_the_loss() -> None:
    # Nothing tells the two classes apart, so that their odds are the ratio of the weights.
    X, y = np.zeros((20, 1)), np.arange(20) % 2
    model = MNClassifier(
        hidden=(4,), alpha_init=1e-6, lr=0.05, weight_decay=0, max_epochs=100, patience=0, random_state=0
    )
    model.fit(X, y, sample_weight=np.where(y == 0, 9.0, 1.0))
    assert_allclose(model.predict_proba(X[:1]), [[0.9, 0.1]], atol=0.03)


# Which neighbours did it.


@both
def test_explain(kind: str) -> None:
    estimator, X, y = made(kind, max_epochs=10, alpha_init=0.1)
    why = estimator.fit(X, y).explain(X[:7], k=10)
    assert_allclose(why.weights.sum(1), 1, rtol=1e-6)  # all ten entries
    assert (np.diff(why.weights, axis=1) <= 0).all()
    assert_array_equal(why.rows, estimator.dictionary_rows_[why.entries])
    assert why.keys.shape == (7, 10, 3)
    assert_array_equal(why.after, outputs(estimator, X[:7]))
    assert not np.allclose(why.before, why.after, rtol=1e-6)
    assert why.moved.shape == (7, 10)
    if kind == "classifier":
        assert why.values.shape == (7, 10, 3)
        assert_allclose(why.values.sum(2), 1, rtol=1e-6)
        assert_allclose(why.before.sum(1), 1, rtol=1e-6)
    few = estimator.explain(X[:7], k=2)
    assert_array_equal(few.entries, why.entries[:, :2])
    assert_allclose(few.moved, why.moved[:, :2], rtol=1e-6, atol=1e-12)


@both
def test_entries_start_as_the_rows_they_name(kind: str) -> None:
    estimator, X, y = made(kind, lr=1e-9, max_epochs=1)
    X, y = np.concatenate([X[:5], X]), np.concatenate([y[:5], y])  # five twins
    weights = np.r_[np.zeros(3), np.ones(62)]
    why = estimator.fit(X, y, sample_weight=weights).explain(X, k=10)
    assert_allclose(why.keys, X[why.rows], rtol=1e-4)
    assert (weights[why.rows] == 1).all()
    if kind == "regressor":
        assert_allclose(why.values, y[why.rows], rtol=1e-4)
    else:
        assert_array_equal(estimator.classes_[why.values.argmax(2)], y[why.rows])


def test_random_entries_name_no_row() -> None:
    estimator, X, y = made("regressor", init="gaussian")
    assert set(estimator.fit(X, y).explain(X).rows.ravel()) == {-1}


@both
def test_without_a_step_nothing_is_adapted(kind: str) -> None:
    estimator, X, y = made(kind, alpha_init=1e-12)
    why = estimator.fit(X, y).explain(X)
    assert_allclose(why.after, why.before, rtol=1e-8)


# Files.


@both
def test_a_file_gives_the_same_estimator(kind: str, tmp_path: Path) -> None:
    estimator, X, y = made(
        kind,
        hidden=[np.int64(8)],
        lr_drops=range(2, 3),
        max_epochs=np.int64(3),
        random_state=np.random.RandomState(0),
    )
    path = tmp_path / "folder" / "model.safetensors"
    estimator.fit(X, y).save(path)
    again = type(estimator).load(path)
    assert_array_equal(outputs(again, X), outputs(estimator, X))
    for name in ("keys", "values", "rows", "moved", "before"):
        assert_array_equal(getattr(again.explain(X), name), getattr(estimator.explain(X), name))
    assert again.loss_curve_ == estimator.loss_curve_
    assert again.n_features_in_ == 3
    assert not hasattr(again, "feature_names_in_")
    params = estimator.get_params() | {
        "hidden": (8,),
        "lr_drops": (2,),
        "max_epochs": 3,
        "random_state": None,
    }
    assert again.get_params() == params
    assert [file.name for file in path.parent.iterdir()] == ["model.safetensors"]


def test_the_network_can_be_taken_out_of_a_file(tmp_path: Path) -> None:
    estimator, X, y = made("regressor")
    estimator.fit(X, y).save(tmp_path / "model")
    network = mn.load(tmp_path / "model")
    assert_allclose(network(torch.from_numpy(X)).detach().numpy()[:, 0], estimator.predict(X), rtol=1e-4)


def test_files_that_are_no_estimators(tmp_path: Path) -> None:
    estimator, X, y = made("regressor")
    good, bad = tmp_path / "good", tmp_path / "bad"
    estimator.fit(X, y).save(good)
    with safe_open(good, framework="pt") as file:
        metadata = file.metadata()
    tensors = load_file(good)

    def refused(message: str, loader: Any = MNRegressor) -> None:
        with pytest.raises(MNError, match=message) as error:
            loader.load(bad)
        assert "\n" not in str(error.value)

    refused("no such file")
    bad.write_bytes(good.read_bytes()[:-100])
    refused("not a readable safetensors file")
    bad.write_bytes(b"PK\x03\x04 something else")
    refused("not a readable safetensors file")
    save_file(tensors, bad)
    refused("not a model of this project")
    save_file(tensors, bad, metadata={k: v for k, v in metadata.items() if k != "estimator"})
    refused("a network without an estimator")
    save_file({k: v for k, v in tensors.items() if "keys" not in k}, bad, metadata=metadata)
    refused("a damaged file")
    for told in ("{", json.dumps({"class": "MNRegressor"}), json.dumps([])):
        save_file(tensors, bad, metadata=metadata | {"estimator": told})
        refused("a damaged file")
    bad.write_bytes(good.read_bytes())
    refused("expected a MNClassifier, found a MNRegressor", MNClassifier)


def test_a_failed_save_leaves_the_old_file(tmp_path: Path) -> None:
    X, y = table()
    days = np.array(["2020-01-01", "2020-01-02"], dtype="datetime64[D]")[(y > 150).astype(int)]
    path = tmp_path / "model"
    path.write_text("old")
    with pytest.raises(ValueError, match="classes: expected text or numbers to save"):
        MNClassifier(**TINY).fit(X, days).save(path)
    assert path.read_text() == "old"


@both
def test_pickles_and_copies(kind: str) -> None:
    estimator, X, y = made(kind)
    estimator.fit(X, y)
    stored = pickle.dumps(estimator)
    for again in (pickle.loads(stored), copy.deepcopy(estimator)):  # noqa: S301
        assert_array_equal(outputs(again, X), outputs(estimator, X))
    assert not hasattr(clone(estimator), "model_")
    pickle.loads(pickle.dumps(clone(estimator)))  # noqa: S301


# Among scikit-learn's own.


@both
def test_pipelines_and_searches(kind: str) -> None:
    estimator, X, y = made(kind)
    pipeline = make_pipeline(StandardScaler(), estimator)
    assert pipeline.fit(X, y).predict(X).shape == y.shape
    assert cross_val_score(pipeline, X, y, cv=2).shape == (2,)
    name = type(estimator).__name__.lower()
    search = GridSearchCV(pipeline, {f"{name}__max_epochs": [1, 20]}, cv=2).fit(X, y)
    assert search.best_params_ == {f"{name}__max_epochs": 20}


@both
@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_frames_keep_their_names(kind: str, library: str, tmp_path: Path) -> None:
    frames = pytest.importorskip(library)
    estimator, X, y = made(kind)
    frame = frames.DataFrame({"a": X[:, 0], "b": X[:, 1], "c": X[:, 2]})
    estimator.fit(frame, y)
    assert estimator.feature_names_in_.tolist() == ["a", "b", "c"]
    with pytest.raises(ValueError, match="feature names should match"):
        estimator.predict(frame[["b", "a", "c"]])
    estimator.save(tmp_path / "model")
    again = type(estimator).load(tmp_path / "model")
    assert_array_equal(again.feature_names_in_, estimator.feature_names_in_)
    assert_array_equal(again.predict(frame), estimator.predict(frame))
    with pytest.warns(UserWarning, match="does not have valid feature names"):
        again.predict(X)
