"""The dictionary of induced neighbours, learned with the model."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mn import functional
from mn.functional import _attention, _checks

INITS = ("gaussian", "uniform", "rows")
VALUES = ("learned", "fixed")
DROPOUTS = ("batch", "instance")
METRICS = ("fixed", "learned")
_SURE = 0.9  # what a training row's own class has of its entry's probabilities at the start


class Dictionary(nn.Module):
    r"""Induced neighbours :math:`M=\{(k_j, v_j)\}_{j=1}^S`, learned with the model (Sec. 2).

    .. math:: \omega(z, k_j) = \mathrm{softmax}_j(\mathrm{sim}(z, k_j) / T)

    With a learned metric both are multiplied by :math:`e^s` first, one factor for each feature.

    Exactly one of ``num_classes`` (values are class probabilities, :math:`\mathrm{softmax}(10 r_j)`
    of a free tensor) and ``num_outputs`` (values are regression targets) is given.

    Args:
        size: S, the number of entries.
        num_features: d, the size of a key.
        num_classes: C, for classification.
        num_outputs: the number of targets, for regression.
        init: how the entries start: keys ``"gaussian"`` or ``"uniform"``, with random values; or both
            from training ``"rows"``, which :meth:`fill` takes.
        key_scale: standard deviation, or half-width, of the keys at the start.
        values: ``"learned"``; ``"fixed"``, random one-hot classes (or targets) that stay.
        value_range: where regression targets start, uniformly.
        sharpening: the fixed factor inside the softmax of the values.
        value_std: standard deviation of the free tensor at the start.
        dropout: the part of the entries left out in training.
        dropout_per: ``"batch"`` draws the entries once for the batch, which also saves their share
            of the work; ``"instance"`` draws them for every instance.
        similarity: ``"cosine"``, ``"euclidean"`` or ``"rms"``, see :func:`mn.functional.attend`.
        temperature: T, fixed.
        metric: ``"fixed"``, or ``"learned"``: features that say nothing of the target drown the others
            in a distance, and shrink here.

    Shape:
        - features ``(B, d)`` -> attention ``(B, S)``

    Example:
        >>> import torch
        >>> Dictionary(8, 4, num_classes=2).attend(torch.randn(3, 4)).shape
        torch.Size([3, 8])
    """

    fixed_values: Tensor
    origins: Tensor | None  # (S,) the training row that each entry started as, -1 for none
    # Dropout draws from here if it is set, else from PyTorch's global generator. Training sets it: processes
    # that share a batch have to leave out the same entries, whatever else each of them draws.
    generator: torch.Generator | None = None
    # (first, all): where in a batch of ``all`` rows this process's rows begin, if others hold the rest.
    share: tuple[int, int] | None = None

    def __init__(
        self,
        size: int,
        num_features: int,
        *,
        num_classes: int | None = None,
        num_outputs: int | None = None,
        init: str = "gaussian",
        key_scale: float = 0.05,
        values: str = "learned",
        value_range: tuple[float, float] = (-1.0, 1.0),
        sharpening: float = 10.0,
        value_std: float = 0.01,
        dropout: float = 0.0,
        dropout_per: str = "batch",
        similarity: str = "cosine",
        temperature: float = 0.2,
        metric: str = "fixed",
    ) -> None:
        super().__init__()
        _checks.at_least("size", size, 1)
        _checks.at_least("num_features", num_features, 1)
        if (num_classes is None) == (num_outputs is None):
            raise ValueError(
                "expected one of num_classes and num_outputs, "
                f"got num_classes={num_classes}, num_outputs={num_outputs}"
            )
        width = (num_classes or 0) + (num_outputs or 0)
        _checks.at_least("num_outputs" if num_classes is None else "num_classes", width, 1)
        _checks.one_of("init", init, INITS)
        _checks.one_of("values", values, VALUES)
        _checks.one_of("dropout_per", dropout_per, DROPOUTS)
        _checks.one_of("similarity", similarity, _checks.SIMILARITIES)
        _checks.positive("temperature", temperature)
        _checks.one_of("metric", metric, METRICS)
        if not 0 <= dropout < 1:
            raise ValueError(f"dropout: expected 0 <= dropout < 1, got {dropout}")
        self.size, self.num_features = size, num_features
        self.num_classes, self.num_outputs = num_classes, num_outputs
        self.init, self.key_scale = init, key_scale
        self.value_range, self.value_std, self.sharpening = value_range, value_std, sharpening
        self.dropout, self.dropout_per = dropout, dropout_per
        self.similarity, self.temperature = similarity, temperature

        self.keys = nn.Parameter(torch.empty(size, num_features))
        self.log_scale = nn.Parameter(torch.empty(num_features)) if metric == "learned" else None  # s
        self.raw_values: nn.Parameter | None = None
        if values == "learned":
            self.raw_values = nn.Parameter(torch.empty(size, width))
        else:
            self.register_buffer("fixed_values", torch.empty(size, width))
        if init == "rows":
            _checks.at_least("size of a dictionary of rows", size, 2)
        origins = torch.full((size,), -1) if init == "rows" else None
        self.register_buffer("origins", origins)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Keys and values anew, at random; those of ``"rows"`` until they are filled."""
        if self.init == "uniform":
            nn.init.uniform_(self.keys, -self.key_scale, self.key_scale)
        else:
            nn.init.normal_(self.keys, std=self.key_scale)
        if self.log_scale is not None:
            nn.init.zeros_(self.log_scale)
        if self.origins is not None:
            self.origins.fill_(-1)
        self.least = 1 if self.origins is None else 2  # what dropout leaves at least
        raw = self._raw
        if self.num_classes is None:
            nn.init.uniform_(raw, *self.value_range)
        elif self.raw_values is not None:
            nn.init.normal_(raw, std=self.value_std)
        else:
            classes = torch.randint(self.num_classes, (self.size,), device=raw.device)
            raw.copy_(F.one_hot(classes, self.num_classes))

    @torch.no_grad()
    def fill(self, features: Tensor, targets: Tensor, *, generator: torch.Generator | None = None) -> None:
        r"""Start from rows of the training part: :math:`k_j = z_{r_j}, v_j = y_{r_j}`, drawn without repeats.

        From fewer rows than entries some are drawn again. A class becomes probabilities of which it has
        nine tenths, so that the values can still move.

        Shape:
            features ``(N, d)``; targets ``(N,)`` classes, or ``(N, out)``
        """
        if self.origins is None:
            raise ValueError(f"expected a dictionary with init='rows' to fill, got init={self.init!r}")
        N = len(features)
        _checks.matrix("features", features, columns=self.num_features)
        _checks.at_least("rows to fill a dictionary from", N, 2)
        shape = (N,) if self.num_outputs is None else (N, self.num_outputs)
        if targets.shape != shape:
            raise ValueError(f"targets: expected {shape}, got {tuple(targets.shape)}")
        orders = [torch.randperm(N, generator=generator) for _ in range(-(-self.size // N))]
        rows = torch.cat(orders)[: self.size].to(features.device)
        self.keys.copy_(features[rows])
        self.origins.copy_(rows)
        self._count_origins()
        if self.num_classes is None:
            self._raw.copy_(targets[rows])
            return
        v = F.one_hot(targets[rows], self.num_classes)
        if self.raw_values is None or self.num_classes == 1:
            self._raw.copy_(v)
        else:
            self._raw.copy_(v * (math.log(_SURE / (1 - _SURE) * (self.num_classes - 1)) / self.sharpening))

    def _count_origins(self) -> None:
        """Note how many entries dropout has to leave, for an instance to see one that it did not become."""
        assert self.origins is not None
        rows = self.origins[self.origins >= 0]
        self.least = 1 + int(rows.unique(return_counts=True)[1].amax())

    def _load_from_state_dict(self, *args: Any, **kwargs: Any) -> None:
        super()._load_from_state_dict(*args, **kwargs)
        if self.origins is not None and (self.origins >= 0).any():
            self._count_origins()

    @property
    def _raw(self) -> Tensor:
        return self.fixed_values if self.raw_values is None else self.raw_values

    @property
    def values(self) -> Tensor:
        """v: class probabilities ``(S, C)``, or targets ``(S, out)``."""
        return self._values(self._raw)

    def attend(self, features: Tensor) -> Tensor:
        """ω(z, k) over all entries, without dropout: ``(B, d) -> (B, S)``."""
        return functional.attend(
            self.measured(features),
            self.measured(self.keys),
            similarity=self.similarity,
            temperature=self.temperature,
        )

    def measured(self, x: Tensor) -> Tensor:
        """Features or keys as they are compared: ``(N, d) -> (N, d)``."""
        return x if self.log_scale is None else x * self.log_scale.exp()

    def draw(self, B: int, rows: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor | None]:
        """Keys and values of the entries in use, and which of them an instance does not see.

        All of them and ``None`` but in training. Dropout per batch leaves fewer entries, per instance all
        of them and a mask ``(B, S)``. An instance does not see the entries that started as itself:
        ``rows (B,)`` says which training rows the batch is of.
        """
        if not self.training:
            return self.keys, self.values, None
        keys, values, origins, without = self._dropped(B)
        if rows is not None and origins is not None:
            own = rows.unsqueeze(1) == origins  # (B, S')
            without = own if without is None else without | own
        return keys, values, without

    def _dropped(self, B: int) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None]:
        """Keys, values and origins of the entries that dropout leaves, and its mask."""
        if self.dropout == 0:
            return self.keys, self.values, self.origins, None
        kept = max(self.least, round(self.size * (1 - self.dropout)))
        device = self.keys.device
        source = device if self.generator is None else self.generator.device
        if self.dropout_per == "batch":
            # sorted, so that the rows are read in order
            order = torch.randperm(self.size, device=source, generator=self.generator)
            index = order[:kept].sort().values.to(device)
            origins = None if self.origins is None else self.origins[index]
            return self.keys[index], self._values(self._raw[index]), origins, None
        first, rows = self.share or (0, B)
        draws = torch.rand(rows, self.size, device=source, generator=self.generator)[first : first + B]
        index = draws.topk(self.size - kept, dim=1, sorted=False).indices
        without = torch.zeros_like(draws, dtype=torch.bool).scatter_(1, index, True)
        return self.keys, self.values, self.origins, without.to(device)

    def forward(self, features: Tensor, rows: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
        """Keys, values and attention of the entries in use: all, or in training a draw of them.

        ``(B, d) -> (S', d), (S', C), (B, S')`` with S' = S but for dropout per batch.
        """
        _checks.neighbors(features, self.keys, names=("features", "keys"))
        keys, values, without = self.draw(features.shape[0], rows)
        index = _attention.index(self.measured(keys), self.similarity)
        sim = _attention.scores(self.measured(features), index, self.similarity)
        return keys, values, _attention.softmax(sim, 1 / self.temperature, without=without)

    def extra_repr(self) -> str:
        kind = "fixed" if self.raw_values is None else "learned"
        return (
            f"{self.size}, {self.num_features}, num_classes={self.num_classes}, "
            f"num_outputs={self.num_outputs}, values={kind}, dropout={self.dropout} per "
            f"{self.dropout_per}, similarity={self.similarity}, temperature={self.temperature}"
        )

    def _values(self, raw: Tensor) -> Tensor:
        given = self.raw_values is None or self.num_classes is None
        return raw if given else (self.sharpening * raw).softmax(1)


def share_in_use(weight: Tensor) -> float:
    """The share of entries whose mean attention ``(S,)`` is at least a tenth of an even spread's, 1/S."""
    return (weight >= 0.1 / len(weight)).float().mean().item()
