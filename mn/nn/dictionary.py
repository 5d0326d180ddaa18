"""The dictionary of induced neighbours, learned with the model."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mn import functional
from mn.functional import _attention, _checks

KEY_INITS = ("gaussian", "uniform")
VALUES = ("learned", "fixed")
DROPOUTS = ("batch", "instance")


class Dictionary(nn.Module):
    r"""Induced neighbours :math:`M=\{(k_j, v_j)\}_{j=1}^S`, learned with the model (Sec. 2).

    .. math:: \omega(z, k_j) = \mathrm{softmax}_j(\mathrm{sim}(z, k_j) / T)

    Exactly one of ``num_classes`` (values are class probabilities, :math:`\mathrm{softmax}(10 r_j)`
    of a free tensor) and ``num_outputs`` (values are regression targets) is given.

    Args:
        size: S, the number of entries.
        num_features: d, the size of a key.
        num_classes: C, for classification.
        num_outputs: the number of targets, for regression.
        key_init: ``"gaussian"`` or ``"uniform"``.
        key_scale: standard deviation, or half-width, of the keys at the start.
        values: ``"learned"``; ``"fixed"``, random one-hot classes (or targets) that stay.
        value_range: where regression targets start, uniformly.
        sharpening: the fixed factor inside the softmax of the values.
        value_std: standard deviation of the free tensor at the start.
        dropout: the part of the entries left out in training.
        dropout_per: ``"batch"`` draws the entries once for the batch, which also saves their share
            of the work; ``"instance"`` draws them for every instance.
        similarity: ``"cosine"``, or ``"euclidean"`` for the negative distance.
        temperature: T, fixed.

    Shape:
        - features ``(B, d)`` -> attention ``(B, S)``

    Example:
        >>> import torch
        >>> Dictionary(8, 4, num_classes=2).attend(torch.randn(3, 4)).shape
        torch.Size([3, 8])
    """

    fixed_values: Tensor
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
        key_init: str = "gaussian",
        key_scale: float = 0.05,
        values: str = "learned",
        value_range: tuple[float, float] = (-1.0, 1.0),
        sharpening: float = 10.0,
        value_std: float = 0.01,
        dropout: float = 0.0,
        dropout_per: str = "batch",
        similarity: str = "cosine",
        temperature: float = 0.2,
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
        _checks.one_of("key_init", key_init, KEY_INITS)
        _checks.one_of("values", values, VALUES)
        _checks.one_of("dropout_per", dropout_per, DROPOUTS)
        _checks.one_of("similarity", similarity, _checks.SIMILARITIES)
        _checks.positive("temperature", temperature)
        if not 0 <= dropout < 1:
            raise ValueError(f"dropout: expected 0 <= dropout < 1, got {dropout}")
        self.size, self.num_features = size, num_features
        self.num_classes, self.num_outputs = num_classes, num_outputs
        self.key_init, self.key_scale = key_init, key_scale
        self.value_range, self.value_std, self.sharpening = value_range, value_std, sharpening
        self.dropout, self.dropout_per = dropout, dropout_per
        self.similarity, self.temperature = similarity, temperature

        self.keys = nn.Parameter(torch.empty(size, num_features))
        self.raw_values: nn.Parameter | None = None
        if values == "learned":
            self.raw_values = nn.Parameter(torch.empty(size, width))
        else:
            self.register_buffer("fixed_values", torch.empty(size, width))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Keys and values anew, at random."""
        if self.key_init == "gaussian":
            nn.init.normal_(self.keys, std=self.key_scale)
        else:
            nn.init.uniform_(self.keys, -self.key_scale, self.key_scale)
        raw = self.fixed_values if self.raw_values is None else self.raw_values
        if self.num_classes is None:
            nn.init.uniform_(raw, *self.value_range)
        elif self.raw_values is not None:
            nn.init.normal_(raw, std=self.value_std)
        else:
            classes = torch.randint(self.num_classes, (self.size,), device=raw.device)
            raw.copy_(F.one_hot(classes, self.num_classes))

    @property
    def values(self) -> Tensor:
        """v: class probabilities ``(S, C)``, or targets ``(S, out)``."""
        if self.raw_values is None:
            return self.fixed_values
        return self._values(self.raw_values)

    def attend(self, features: Tensor) -> Tensor:
        """ω(z, k) over all entries, without dropout: ``(B, d) -> (B, S)``."""
        return functional.attend(
            features, self.keys, similarity=self.similarity, temperature=self.temperature
        )

    def draw(self, B: int) -> tuple[Tensor, Tensor, Tensor | None]:
        """Keys and values of the entries in use, and which of them an instance does not see.

        All of them and ``None`` but for dropout in training: per batch, fewer entries; per
        instance, all of them and a mask ``(B, S)``.
        """
        if not self.training or self.dropout == 0:
            return self.keys, self.values, None
        kept = max(1, round(self.size * (1 - self.dropout)))
        device = self.keys.device
        source = device if self.generator is None else self.generator.device
        if self.dropout_per == "batch":
            # sorted, so that the rows are read in order
            order = torch.randperm(self.size, device=source, generator=self.generator)
            index = order[:kept].sort().values.to(device)
            if self.raw_values is None:
                return self.keys[index], self.fixed_values[index], None
            return self.keys[index], self._values(self.raw_values[index]), None
        first, rows = self.share or (0, B)
        draws = torch.rand(rows, self.size, device=source, generator=self.generator)[first : first + B]
        index = draws.topk(self.size - kept, dim=1, sorted=False).indices
        without = torch.zeros_like(draws, dtype=torch.bool).scatter_(1, index, True)
        return self.keys, self.values, without.to(device)

    def forward(self, features: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Keys, values and attention of the entries in use: all, or in training a draw of them.

        ``(B, d) -> (S', d), (S', C), (B, S')`` with S' = S but for dropout per batch.
        """
        _checks.neighbors(features, self.keys, names=("features", "keys"))
        keys, values, without = self.draw(features.shape[0])
        sim = _attention.scores(features, _attention.index(keys, self.similarity), self.similarity)
        return keys, values, _attention.softmax(sim, 1 / self.temperature, without=without)

    def extra_repr(self) -> str:
        kind = "fixed" if self.raw_values is None else "learned"
        return (
            f"{self.size}, {self.num_features}, num_classes={self.num_classes}, "
            f"num_outputs={self.num_outputs}, values={kind}, dropout={self.dropout} per "
            f"{self.dropout_per}, similarity={self.similarity}, temperature={self.temperature}"
        )

    def _values(self, raw: Tensor) -> Tensor:
        return raw if self.num_classes is None else (self.sharpening * raw).softmax(1)


def share_in_use(weight: Tensor) -> float:
    """The share of entries whose mean attention ``(S,)`` is at least a tenth of an even spread's, 1/S."""
    return (weight >= 0.1 / len(weight)).float().mean().item()
