"""Meta-Neighborhoods for a table, as scikit-learn estimators.

The network is an MLP whose layers all adapt to each row (backbone ``identity``, head ``mlp``). Training is
:func:`mn.engine.fit.train`, in memory.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from numbers import Integral, Real
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeVar

import numpy as np
import torch
from joblib import effective_n_jobs
from safetensors import safe_open
from safetensors.torch import save_file
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin, _fit_context
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data
from torch import Tensor

from mn.data.split import Part, SplitData, Standardisation
from mn.engine.build import ModelShape, build_model
from mn.engine.config import (
    MAIN_SPLIT,
    DictionarySettings,
    ExecutionSettings,
    NetworkSettings,
    RunConfig,
    TrainSettings,
)
from mn.engine.devices import resolve_device
from mn.engine.event import Event
from mn.engine.fit import Trained, train
from mn.engine.modelfile import TrainedModel, load_model, save_model
from mn.engine.progress import PlannedRun, run_progress
from mn.errors import MNError
from mn.files import replacing
from mn.nn import MetaNeighborhoods
from mn.tablerows import ROUNDING, Rows, distinct, hold_out, relative, statistics

if TYPE_CHECKING:
    from typing_extensions import Self

_BATCH = 1024  # rows predicted at a time
_ESTIMATOR = "estimator"  # the key of a file's metadata under which an estimator keeps its own
# What fit finds besides the network, as plain data.
_FOUND = ("n_iter_", "loss_curve_", "validation_loss_curve_", "best_validation_loss_")

_Read = TypeVar("_Read")

_above_0 = Interval(Real, 0, np.inf, closed="neither")
_from_0 = Interval(Real, 0, np.inf, closed="left")


@dataclass(frozen=True)
class Adaptation:
    """The entries of the dictionary with the most weight in each prediction, heaviest first.

    t is the number of targets of a regressor, an axis that is missing if ``y`` had one dimension; of a
    classifier it is the number of classes, and values and predictions are probabilities.
    """

    entries: np.ndarray  # (n, k) places in the dictionary
    rows: np.ndarray  # (n, k) the row of fit's X that each entry started as, -1 for none
    keys: np.ndarray  # (n, k, d) in the unit of X
    values: np.ndarray  # (n, k, t) in the unit of y
    weights: np.ndarray  # (n, k) the attention, over the whole dictionary summing to 1
    # What each entry added to the prediction, all others as they are: (n, k, t), in the unit of y. Of a
    # classifier (n, k): what it added to the logit of the class that won.
    moved: np.ndarray
    before: np.ndarray  # (n, t) the prediction without adaptation
    after: np.ndarray  # (n, t) and with it, which is what predict gives


class _Estimator(BaseEstimator, ABC):  # type: ignore[misc]  # scikit-learn has no types
    """What the regressor and the classifier share: all but the form of targets and outputs."""

    _task: ClassVar[Literal["regression", "classification"]]
    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "hidden": ["array-like"],
        "S": [Interval(Integral, 2, None, closed="left")],
        "T": [_above_0],
        "similarity": [StrOptions({"cosine", "euclidean", "rms"})],
        # Not "alpha": scikit-learn's checks take a parameter of that name for a number.
        "alpha_kind": [StrOptions({"scalar", "layer"})],
        "alpha_init": [_above_0],
        "metric": [StrOptions({"fixed", "learned"})],
        "dropout": [Interval(Real, 0, 1, closed="left")],
        "init": [StrOptions({"rows", "gaussian", "uniform"})],
        "activation": [StrOptions({"relu", "tanh"})],
        "lr": [_above_0],
        "value_lr": [_above_0],
        "alpha_lr": [_above_0],
        "metric_lr": [_above_0],
        "weight_decay": [_from_0],
        "batch_size": [StrOptions({"auto"}), Interval(Integral, 1, None, closed="left")],
        "max_epochs": [Interval(Integral, 1, None, closed="left")],
        "lr_drops": ["array-like"],
        "patience": [Interval(Integral, 0, None, closed="left")],
        "validation_fraction": [Interval(Real, 0, 1, closed="left")],
        "limit": [_above_0, None],
        "random_state": ["random_state"],
        "n_jobs": [Integral, None],
        "verbose": ["verbose"],
        "device": [StrOptions({"auto", "cpu", "cuda"})],
    }

    def __init__(
        self,
        *,
        hidden: tuple[int, ...] = (128, 128, 128),
        S: int = 1000,
        T: float = 0.1,
        similarity: str = "rms",
        metric: str = "learned",
        alpha_kind: str = "scalar",
        alpha_init: float = 0.003,
        dropout: float = 0.75,
        init: str = "rows",
        activation: str = "relu",
        lr: float = 1e-3,
        value_lr: float = 1.0,
        alpha_lr: float = 1.0,
        metric_lr: float = 10.0,
        weight_decay: float = 0.5,
        batch_size: int | str = "auto",
        max_epochs: int = 200,
        lr_drops: tuple[int, ...] = (),
        patience: int = 10,
        validation_fraction: float = 0.1,
        limit: float | None = 10.0,
        random_state: int | np.random.RandomState | None = None,
        n_jobs: int | None = None,
        verbose: int = 0,
        device: str = "auto",
    ) -> None:
        self.hidden = hidden
        self.S = S
        self.T = T
        self.similarity = similarity
        self.metric = metric
        self.alpha_kind = alpha_kind
        self.alpha_init = alpha_init
        self.dropout = dropout
        self.init = init
        self.activation = activation
        self.lr = lr
        self.value_lr = value_lr
        self.alpha_lr = alpha_lr
        self.metric_lr = metric_lr
        self.weight_decay = weight_decay
        self.batch_size = batch_size
        self.max_epochs = max_epochs
        self.lr_drops = lr_drops
        self.patience = patience
        self.validation_fraction = validation_fraction
        self.limit = limit
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.verbose = verbose
        self.device = device

    @_fit_context(prefer_skip_nested_validation=True)  # type: ignore[untyped-decorator]
    def fit(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        X_val: Any = None,
        y_val: Any = None,
        sample_weight_val: Any = None,
    ) -> Self:
        """Train on rows ``X (n, d)`` with targets ``y``.

        Training stops when the loss on validation rows no longer falls, and the best weights are kept.
        These rows are ``X_val``, or else drawn from ``X``: of each class alike, and not to be found among
        the rows trained on. Where they would be fewer than five, all rows do both.

        Args:
            sample_weight: how much each row counts ``(n,)``. A row of weight 0 is as if not given, one of
                weight 2 as if given twice. Only the ratios of weights matter.
            sample_weight_val: the same for ``X_val``.
        """
        _counts("hidden", self.hidden, "widths")
        _counts("lr_drops", self.lr_drops, "epochs")
        rows, places = self._rows(X, y, sample_weight, "sample_weight", new=True)
        rows, first = distinct(rows)
        random = check_random_state(self.random_state)
        seed = int(random.randint(np.iinfo(np.int32).max))
        if X_val is not None:
            if y_val is None:
                raise ValueError("y_val is missing: X_val needs targets to validate on")
            validation, _ = self._rows(X_val, y_val, sample_weight_val, "sample_weight_val", new=False)
            held_out = np.zeros(len(first), dtype=bool)
        elif y_val is not None or sample_weight_val is not None:
            raise ValueError("X_val is missing: y_val and sample_weight_val are of its rows")
        else:
            held_out = hold_out(self._strata(rows.y), self.validation_fraction, random)
            validation = rows.at(held_out) if held_out.any() else rows
        training = rows.at(~held_out)

        data = self._data(training, validation)
        config = self._run(data, seed)
        with _threads(self.n_jobs), _shown(self.verbose, config) as progress:
            trained = train(
                config,
                data,
                execution=_execution(self.device),
                progress=progress,
                remedy="lower lr or alpha_init",
            )
            progress(Event(config.name, "end", note=f"{len(trained.history)} epochs"))
        self._keep(config, data, trained)
        dictionary = self._network.dictionary
        if dictionary.origins is None:
            self.dictionary_rows_ = np.full(dictionary.size, -1)
        else:
            self.dictionary_rows_ = places[first][~held_out][dictionary.origins.numpy()]
        return self

    def explain(self, X: Any, k: int = 5) -> Adaptation:
        """Which ``k`` entries of the dictionary moved each prediction, or all of them if it has fewer."""
        if k < 1:
            raise ValueError(f"k: expected at least 1, got {k}")

        def compute(network: MetaNeighborhoods, z: Tensor) -> tuple[Tensor, ...]:
            why = network.explain(z, min(k, network.dictionary.size))
            return why.entries, why.weights, why.values, why.moved, network.unadapted(z), network(z)

        entries, weights, values, moved, before, after = self._computed(X, compute)
        model = self.model_
        assert model.x_std is not None
        assert model.x_mean is not None
        keys = self._network.dictionary.keys.detach().cpu() * model.x_std + model.x_mean
        places = entries.numpy()
        return Adaptation(
            entries=places,
            rows=self.dictionary_rows_[places],
            keys=keys[entries].numpy(),
            values=self._answer(values, probabilities=True),
            weights=weights.numpy(),
            moved=self._moved(moved),
            before=self._answer(before),
            after=self._answer(after),
        )

    def save(self, path: str | Path) -> None:
        """Write the fitted estimator to one safetensors file, whole or not at all. No pickle is involved.

        :meth:`load` reads it, and :func:`mn.load` takes the network out of it. A ``random_state`` that is
        a generator is not kept.
        """
        check_is_fitted(self)
        told = {
            "class": type(self).__name__,
            "params": {name: _plain(value) for name, value in self.get_params(deep=False).items()},
            "fitted": {
                **{name: getattr(self, name) for name in _FOUND},
                "dictionary_rows": self.dictionary_rows_.tolist(),
                "feature_names": getattr(self, "feature_names_in_", np.empty(0)).tolist(),
                **self._own_state(),
            },
        }
        model = self.model_
        scale = Standardisation(model.x_mean, model.x_std, model.y_mean, model.y_std, model.x_limit)
        shape = ModelShape((self.n_features_in_,), *self._sizes())
        with replacing(Path(path)) as aside:
            save_model(aside, model.model.state_dict(), self._config, shape, scale)
            with safe_open(aside, framework="pt") as file:
                metadata = file.metadata() | {_ESTIMATOR: json.dumps(told)}
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            save_file(tensors, aside, metadata=metadata)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """A fitted estimator written by :meth:`save`.

        Raises:
            MNError: the file is missing or damaged, or holds something else.
        """
        model = _readable(path, lambda: load_model(path))
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata()
        if _ESTIMATOR not in metadata:
            raise MNError(f"{path}: a network without an estimator; mn.load reads it")
        return _readable(path, lambda: cls._restored(path, model, metadata))

    @classmethod
    def _restored(cls, path: str | Path, model: TrainedModel, metadata: dict[str, str]) -> Self:
        told = json.loads(metadata[_ESTIMATOR])
        if told["class"] != cls.__name__:
            raise MNError(f"{path}: expected a {cls.__name__}, found a {told['class']}")
        fitted = told["fitted"]
        params: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in told["params"].items()
        }
        estimator = cls(**params)
        for name in _FOUND:
            setattr(estimator, name, fitted[name])
        estimator.dictionary_rows_ = np.array(fitted["dictionary_rows"])
        if fitted["feature_names"]:
            estimator.feature_names_in_ = np.array(fitted["feature_names"], dtype=object)
        estimator._restore_own_state(fitted)
        estimator._config = RunConfig.from_identity(json.loads(metadata["config"]))
        estimator._hold(model)
        return estimator

    def __getstate__(self) -> dict[str, Any]:
        # The copy for predictions is made again, on whatever device there is then.
        return {name: value for name, value in super().__getstate__().items() if name != "_network"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        if "model_" in state:
            self._hold(self.model_)

    def _rows(self, X: Any, y: Any, weights: Any, name: str, *, new: bool) -> tuple[Rows, np.ndarray]:
        """Checked rows, and the places in ``X`` of those whose weight is not 0."""
        X, y = self._checked(X, y, new)
        weights = _check_sample_weight(weights, X, dtype=np.float64, ensure_non_negative=True)
        places = np.flatnonzero(weights)
        if not len(places):
            raise ValueError(f"{name}: expected some above 0, got {len(weights)} zeros")
        return Rows(X[places], self._coded(y[places], new), weights[places]), places

    def _data(self, training: Rows, validation: Rows) -> SplitData:
        scale = self._scale(training)
        parts = [
            Part(
                scale.inputs(torch.from_numpy(rows.x)),
                scale.targets(torch.from_numpy(rows.y)),
                weights=relative(rows.weights),
            )
            for rows in (training, validation)
        ]
        num_classes, num_targets = self._sizes()
        return SplitData(
            task=self._task,
            kind="table",
            num_classes=num_classes,
            num_targets=num_targets,
            standardisation=scale,
            train=parts[0],
            validation=parts[1],
            test=parts[1],
        )

    def _scale(self, training: Rows) -> Standardisation:
        x_mean, x_std, constant = statistics("X", training.x, training.weights)
        x_std[constant] = 1.0  # a constant column carries nothing: it becomes 0, not NaN
        limit = None if self.limit is None else torch.tensor(float(self.limit), dtype=torch.float64)
        if self._task == "classification":
            return Standardisation(x_mean, x_std, x_limit=limit)
        y_mean, y_std, constant = statistics("y", training.y, training.weights)
        # Of a constant target whatever the network says is to mean the same.
        y_std[constant] = ROUNDING * y_mean[constant].abs().clamp(min=1.0)
        return Standardisation(x_mean, x_std, y_mean, y_std, limit)

    def _run(self, data: SplitData, seed: int) -> RunConfig:
        rows = len(data.train)
        # About ten steps an epoch of a small table, of which few epochs would else be few steps.
        batch = min(128, max(8, rows // 10)) if self.batch_size == "auto" else int(self.batch_size)
        return RunConfig(
            dataset=type(self).__name__,
            split=MAIN_SPLIT,
            method="mn",
            seed=seed,
            network=NetworkSettings(
                backbone="identity",
                last_relu=False,
                head="mlp",
                hidden=_counts("hidden", self.hidden, "widths"),
                activation=self.activation,  # type: ignore[arg-type]
            ),
            dictionary=DictionarySettings(
                S=min(int(self.S), rows),
                T=float(self.T),
                similarity=self.similarity,  # type: ignore[arg-type]
                steps=1,
                alpha=self.alpha_kind,  # type: ignore[arg-type]
                alpha_init=float(self.alpha_init),
                alpha_learned=True,
                dropout=float(self.dropout),
                dropout_per="batch",
                init=self.init,  # type: ignore[arg-type]
                key_scale=1.0,
                values="learned",
                metric=self.metric,  # type: ignore[arg-type]
            ),
            training=TrainSettings(
                optimizer="adamw",
                lr=float(self.lr),
                momentum=0.0,
                weight_decay=float(self.weight_decay),
                batch_size=batch,
                epochs=int(self.max_epochs),
                lr_drops=_counts("lr_drops", self.lr_drops, "epochs"),
                lr_factor=0.1,
                alpha_lr=float(self.alpha_lr) * float(self.alpha_init),
                dictionary_lr=1.0,
                value_lr=float(self.value_lr),
                metric_lr=float(self.metric_lr),
                clip=10.0,
                patience=int(self.patience),
                augment="none",
                batchnorm="running",
                keep="best",
                snapshots=[],
                precision="fp32",
            ),
        )

    def _keep(self, config: RunConfig, data: SplitData, trained: Trained) -> None:
        with torch.random.fork_rng(devices=[]):  # fresh weights are drawn, and replaced at once
            network = build_model(config, ModelShape.of(data))
        network.load_state_dict(trained.weights)
        self._config = config
        self._hold(TrainedModel(network, data.standardisation).eval())
        history = trained.history
        best = min(history, key=lambda row: (-row.get("val_accuracy", 0.0), row["val_loss"]))
        self.n_iter_ = len(history)
        self.loss_curve_ = [row["train_loss"] for row in history]
        self.validation_loss_curve_ = [row["val_loss"] for row in history]
        self.best_validation_loss_ = best["val_loss"]

    def _hold(self, model: TrainedModel) -> None:
        assert isinstance(model.model, MetaNeighborhoods)
        assert model.x_mean is not None
        self.model_ = model
        self.n_features_in_ = len(model.x_mean)
        # In float64 a row's prediction does not depend on the rows beside it, but for the last digits.
        self._network = deepcopy(model.model).double()

    def _outputs(self, X: Any) -> Tensor:
        """What the network says of rows ``X``: ``(n, t)``, float64."""
        (outputs,) = self._computed(X, lambda network, z: (network(z),))
        return outputs

    def _computed(
        self, X: Any, compute: Callable[[MetaNeighborhoods, Tensor], tuple[Tensor, ...]]
    ) -> list[Tensor]:
        """What ``compute`` gives for standardised rows, a batch at a time and put together."""
        check_is_fitted(self)
        X = validate_data(self, X, dtype=np.float64, reset=False)
        device = resolve_device(self.device)
        with _threads(self.n_jobs), torch.inference_mode():
            network = self._network.to(device)
            found = []
            for start in range(0, len(X), _BATCH):
                z = self.model_.standardised(torch.tensor(X[start : start + _BATCH]))
                found.append([part.cpu() for part in compute(network, z.double().to(device))])
        return [torch.cat(parts) for parts in zip(*found, strict=True)]

    @abstractmethod
    def _checked(self, X: Any, y: Any, new: bool) -> tuple[np.ndarray, np.ndarray]:
        """X as float64, and y, in forms that can be trained on."""

    @abstractmethod
    def _coded(self, y: np.ndarray, new: bool) -> np.ndarray:
        """y as a network learns it, before standardisation; ``new`` says to note its form."""

    @abstractmethod
    def _strata(self, y: np.ndarray) -> np.ndarray:
        """Which rows ``(n,)`` belong together, for a validation part like the whole."""

    @abstractmethod
    def _sizes(self) -> tuple[int, int]:
        """The numbers of classes and of targets; one of them is 0."""

    @abstractmethod
    def _answer(self, outputs: Tensor, *, probabilities: bool = False) -> np.ndarray:
        """Outputs in the form of a prediction; ``probabilities`` if they are no logits."""

    @abstractmethod
    def _moved(self, moved: Tensor) -> np.ndarray:
        """What entries added to the outputs, in the form of :attr:`Adaptation.moved`."""

    @abstractmethod
    def _own_state(self) -> dict[str, Any]:
        """What a file has to hold besides, as plain data."""

    @abstractmethod
    def _restore_own_state(self, state: dict[str, Any]) -> None:
        """Take back what :meth:`_own_state` gave."""


class MNRegressor(RegressorMixin, _Estimator):  # type: ignore[misc]
    r"""Regression for tables: an MLP that takes a gradient step on a learned dictionary for every row.

    Inputs and targets are standardised inside. Rows that are equal, target included, count as one row of
    their summed weight, and the order of rows changes nothing.

    Args:
        hidden: widths of the hidden layers.
        S: entries of the dictionary, at least 2; no more are made than there are training rows.
        T: temperature of the attention; the lower, the nearer the neighbours that count.
        similarity: ``"rms"`` (the Euclidean distance over √d), ``"euclidean"`` or ``"cosine"``.
        metric: ``"learned"``, a factor for each column in the similarity, or ``"fixed"``.
        alpha_kind: the inner rate α: one ``"scalar"``, or one for every ``"layer"``.
        alpha_init: where it starts.
        dropout: the share of entries left out at a training step.
        init: how entries start: as training ``"rows"``, or at random, ``"gaussian"`` or ``"uniform"``.
        activation: ``"relu"`` or ``"tanh"``.
        lr: learning rate of the network and the keys (AdamW).
        value_lr: that of the values, over ``lr``.
        alpha_lr: that of α, over ``lr`` and relative to ``alpha_init``.
        metric_lr: that of the columns' factors, over ``lr``.
        weight_decay: multiplied by ``lr``.
        batch_size: rows a step; ``"auto"`` is a tenth of the training rows, from 8 to 128.
        max_epochs: the most passes over the training rows.
        lr_drops: epochs after which the learning rates fall to a tenth. Where they are to be reached, set
            ``patience=0`` and ``max_epochs`` a little beyond the last.
        patience: epochs without a better validation score before stopping; 0 for never.
        validation_fraction: the share of rows to validate on; 0 validates on the training rows.
        limit: standard deviations from the mean beyond which an input is taken to lie there; None for none.
        random_state: seed or generator; the same seed gives the same result. None draws the seed from
            NumPy's global generator, as everywhere in scikit-learn; nothing else draws from it.
        n_jobs: PyTorch's threads: None is 1, -1 all cores.
        verbose: above 0 shows progress.
        device: ``"auto"`` (CUDA where there is a device), ``"cpu"`` or ``"cuda"``.

    Attributes:
        model_: the trained network as a PyTorch module on raw rows.
        n_iter_: epochs trained.
        loss_curve_: training loss by epoch, of standardised targets.
        validation_loss_curve_: the same on the validation rows.
        best_validation_loss_: that of the weights that were kept.
        dictionary_rows_: the row of ``X`` that each entry started as ``(S,)``, -1 for none.
        n_features_in_: d.
        feature_names_in_: the columns' names, if all of them are strings.

    Shape:
        - ``X (n, d)``, ``y (n,)`` or ``(n, t)``; predictions as ``y``, float64

    Example:
        >>> import numpy as np
        >>> from mn import MNRegressor
        >>> X = np.linspace(-3, 3, 200).reshape(-1, 1)
        >>> model = MNRegressor(hidden=(32,), S=50, lr=0.03, max_epochs=20, random_state=0)
        >>> model.fit(X, np.sin(X[:, 0])).score(X, np.sin(X[:, 0])) > 0.9
        True
        >>> model.explain(X[:2], k=3).rows.shape
        (2, 3)
    """

    _task = "regression"

    def predict(self, X: Any) -> np.ndarray:
        """Targets of rows ``X (n, d)``: ``(n,)`` or ``(n, t)``, as ``y`` was."""
        return self._answer(self._outputs(X))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def _checked(self, X: Any, y: Any, new: bool) -> tuple[np.ndarray, np.ndarray]:
        X, y = validate_data(
            self,
            X,
            y,
            reset=new,
            dtype=np.float64,
            multi_output=True,
            y_numeric=True,
            ensure_min_samples=2 if new else 1,
        )
        return X, y.astype(np.float64)

    def _coded(self, y: np.ndarray, new: bool) -> np.ndarray:
        targets = y.reshape(len(y), -1)
        if new:
            self._y_is_1d, self._num_targets = y.ndim == 1, targets.shape[1]
        elif targets.shape[1] != self._num_targets:
            raise ValueError(f"y_val: expected {self._num_targets} targets as in y, got {targets.shape[1]}")
        return targets

    def _strata(self, y: np.ndarray) -> np.ndarray:
        return np.zeros(len(y), dtype=np.int64)

    def _sizes(self) -> tuple[int, int]:
        return 0, self._num_targets

    def _answer(self, outputs: Tensor, *, probabilities: bool = False) -> np.ndarray:  # noqa: ARG002
        assert self.model_.y_std is not None
        assert self.model_.y_mean is not None
        return self._shaped(outputs * self.model_.y_std + self.model_.y_mean)

    def _moved(self, moved: Tensor) -> np.ndarray:
        assert self.model_.y_std is not None
        return self._shaped(moved * self.model_.y_std)

    def _shaped(self, targets: Tensor) -> np.ndarray:
        array: np.ndarray = targets.numpy()
        return array[..., 0] if self._y_is_1d else array

    def _own_state(self) -> dict[str, Any]:
        return {"y_is_1d": self._y_is_1d, "num_targets": self._num_targets}

    def _restore_own_state(self, state: dict[str, Any]) -> None:
        self._y_is_1d, self._num_targets = state["y_is_1d"], state["num_targets"]


class MNClassifier(ClassifierMixin, _Estimator):  # type: ignore[misc]
    r"""Classification for tables: an MLP that takes a gradient step on a learned dictionary for every row.

    Parameters and attributes are those of :class:`MNRegressor`; there is also ``classes_``, the labels in
    sorted order. The epoch that is kept has the fewest validation errors, and of those the lowest loss.

    Shape:
        - ``X (n, d)``, ``y (n,)`` labels of any kind; probabilities ``(n, classes)``

    Example:
        >>> from sklearn.datasets import make_moons
        >>> from mn import MNClassifier
        >>> X, y = make_moons(200, noise=0.1, random_state=0)
        >>> model = MNClassifier(hidden=(32,), S=50, lr=0.03, max_epochs=20, random_state=0)
        >>> model.fit(X, y).score(X, y) > 0.9
        True
        >>> model.predict_proba(X[:3]).shape
        (3, 2)
    """

    _task = "classification"

    def predict(self, X: Any) -> np.ndarray:
        """Labels ``(n,)`` of rows ``X (n, d)``."""
        winners = self._outputs(X).argmax(1).numpy()
        labels: np.ndarray = self.classes_[winners]
        return labels

    def predict_proba(self, X: Any) -> np.ndarray:
        """Probabilities ``(n, classes)`` in the order of ``classes_``."""
        return self._answer(self._outputs(X))

    def predict_log_proba(self, X: Any) -> np.ndarray:
        """Their logarithms, which stay finite where a probability rounds to 0."""
        logs: np.ndarray = self._outputs(X).log_softmax(1).numpy()
        return logs

    def _checked(self, X: Any, y: Any, new: bool) -> tuple[np.ndarray, np.ndarray]:
        X, y = validate_data(
            self, X, y, reset=new, dtype=np.float64, ensure_min_samples=2 if new else 1
        )  # fmt: skip
        check_classification_targets(y)
        return X, y

    def _coded(self, y: np.ndarray, new: bool) -> np.ndarray:
        if new:
            self.classes_ = np.unique(y)
        elif len(strange := np.setdiff1d(y, self.classes_)):
            raise ValueError(f"y_val: expected classes of y, got also {strange[:5].tolist()}")
        return np.searchsorted(self.classes_, y)

    def _strata(self, y: np.ndarray) -> np.ndarray:
        return y

    def _sizes(self) -> tuple[int, int]:
        return len(self.classes_), 0

    def _answer(self, outputs: Tensor, *, probabilities: bool = False) -> np.ndarray:
        answer: np.ndarray = (outputs if probabilities else outputs.softmax(-1)).numpy()
        return answer

    def _moved(self, moved: Tensor) -> np.ndarray:
        parts: np.ndarray = moved.numpy()
        return parts

    def _own_state(self) -> dict[str, Any]:
        labels = self.classes_.tolist()
        if not all(isinstance(label, str | bool | int | float) for label in labels):
            raise ValueError(f"classes: expected text or numbers to save, got {self.classes_.dtype}")
        return {"classes": labels, "classes_dtype": self.classes_.dtype.str}

    def _restore_own_state(self, state: dict[str, Any]) -> None:
        self.classes_ = np.array(state["classes"], dtype=np.dtype(state["classes_dtype"]))


def _counts(name: str, given: Any, what: str) -> list[int]:
    counts = list(given)
    if not all(isinstance(count, Integral) and int(count) >= 1 for count in counts):
        raise ValueError(f"{name}: expected {what} of at least 1, got {given!r}")
    return [int(count) for count in counts]


def _execution(device: str) -> ExecutionSettings:
    return ExecutionSettings(
        device=device,  # type: ignore[arg-type]
        scheduler="local",
        workers=0,
        channels_last=False,
        compile=False,
        jobs=1,
        threads=1,
        checkpoint_seconds=0.0,
    )


@contextmanager
def _threads(n_jobs: int | None) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(effective_n_jobs(n_jobs))
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def _shown(verbose: int, config: RunConfig) -> Iterator[Callable[[Event], None]]:
    if not verbose:
        yield lambda _: None
        return
    assert config.training is not None
    planned = PlannedRun(config.name, config.method, config.training.epochs)
    with run_progress(config.dataset, [planned]) as progress:
        yield progress


def _plain(value: Any) -> Any:
    """A parameter as JSON has it."""
    if isinstance(value, np.random.RandomState):
        return None
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    return value if isinstance(value, str | Real | None) else [_plain(one) for one in value]


def _readable(path: str | Path, read: Callable[[], _Read]) -> _Read:
    """What ``read`` gives; where a file is not what it says, one line that says so."""
    try:
        return read()
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        what = (str(error) or type(error).__name__).splitlines()[0]
        raise MNError(f"{path}: a damaged file ({what})") from None
