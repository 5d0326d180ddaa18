"""The model: any backbone, a head, and the dictionary that adapts it to every instance."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn

from mn.functional import _attention, _checks
from mn.functional._attention import at_least_float32
from mn.nn.alpha import Alpha
from mn.nn.dictionary import Dictionary
from mn.nn.explain import Explanation, explain
from mn.nn.heads import CosineHead, DotHead, Head, MLPHead
from mn.nn.neighborhood import Kept, Neighborhood

if TYPE_CHECKING:
    from typing_extensions import Self

HEADS = ("cosine", "dot", "mlp")


class Vanilla(nn.Module):
    """The same backbone and head without a dictionary: what the method is compared with.

    Shape:
        - what the backbone takes -> ``(B, outputs)``

    Example:
        >>> import torch
        >>> from mn.nn import CosineHead
        >>> Vanilla(torch.nn.Identity(), CosineHead(4, 3))(torch.randn(2, 4)).shape
        torch.Size([2, 3])
    """

    def __init__(self, backbone: nn.Module, head: nn.Module) -> None:
        super().__init__()
        self.backbone, self.head = backbone, head

    def features(self, x: Tensor) -> Tensor:
        """z = μ_θ(x)."""
        z: Tensor = self.backbone(x)
        return z

    def forward(self, x: Tensor, rows: Tensor | None = None) -> Tensor:  # noqa: ARG002 (as with a dictionary)
        out: Tensor = self.head(self.backbone(x))
        return out


class Comparison(NamedTuple):
    """A batch with and without its neighbours."""

    before: Tensor  # (B, outputs) of the head as it is
    after: Tensor  # (B, outputs) of the head adapted to each instance
    attention: Tensor  # (B, S) ω


class MetaNeighborhoods(nn.Module):
    r"""A network whose head takes a gradient step on a learned dictionary for every instance.

    .. math::
        z_i = \mu_\theta(x_i), \qquad
        \phi_i = \phi - \alpha \nabla_\phi \sum_j \omega(z_i, k_j) L(f_\phi(k_j), v_j), \qquad
        \hat y_i = f_{\phi_i}(z_i)

    Args:
        backbone: μ_θ, any module that gives ``(B, num_features)``; ``nn.Identity()`` for the input.
        num_features: d.
        num_classes: C, for classification; or
        num_outputs: the number of targets, for regression.
        S: entries of the dictionary.
        head: ``"cosine"``, ``"dot"``, ``"mlp"``, or a :class:`mn.nn.Head`. By default ``"cosine"``
            for classes, ``"mlp"`` for targets, which take no other.
        hidden, activation: of the ``"mlp"`` head.
        T: temperature of the attention.
        similarity: ``"cosine"``, ``"euclidean"`` or ``"rms"``, see :func:`mn.functional.attend`.
        steps: inner steps.
        alpha: ``"scalar"``, ``"diagonal"`` (classifiers) or ``"layer"`` (MLP).
        alpha_init, alpha_learned: see :class:`mn.nn.Alpha`.
        dropout, dropout_per: see :class:`mn.nn.Dictionary`, as for
        dictionary: what else it takes (``init``, ``metric``, ``key_scale``, ``values``, ...).

    Shape:
        - what the backbone takes -> ``(B, C)`` logits, or ``(B, num_outputs)``

    Example:
        >>> import torch
        >>> backbone = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(192, 16))
        >>> model = MetaNeighborhoods(backbone, num_classes=10, num_features=16, S=50)
        >>> model(torch.randn(2, 3, 8, 8)).shape
        torch.Size([2, 10])
    """

    def __init__(
        self,
        backbone: nn.Module,
        *,
        num_features: int,
        num_classes: int | None = None,
        num_outputs: int | None = None,
        S: int = 5000,
        head: str | Head | None = None,
        hidden: tuple[int, ...] = (256, 256),
        activation: str = "relu",
        T: float = 0.2,
        similarity: str = "cosine",
        steps: int = 1,
        alpha: str = "scalar",
        alpha_init: float = 0.05,
        alpha_learned: bool = True,
        dropout: float = 0.5,
        dropout_per: str = "batch",
        **dictionary: Any,
    ) -> None:
        super().__init__()
        _checks.at_least("steps", steps, 1)
        self.backbone = backbone
        self.dictionary = Dictionary(
            S,
            num_features,
            num_classes=num_classes,
            num_outputs=num_outputs,
            dropout=dropout,
            dropout_per=dropout_per,
            similarity=similarity,
            temperature=T,
            **dictionary,
        )
        if head is None:
            head = "mlp" if num_classes is None else "cosine"
        if isinstance(head, str):
            head = _head(head, num_features, num_classes, num_outputs, hidden, activation)
        if not isinstance(head, Head):
            raise ValueError(f"head: expected one of {', '.join(HEADS)} or an mn.nn.Head, got {head!r}")
        sizes = (num_features, num_classes if num_outputs is None else num_outputs)
        if (head.num_features, head.num_outputs) != sizes:
            raise ValueError(
                f"head: expected {sizes[0]} features and {sizes[1]} outputs, "
                f"got {head.num_features} and {head.num_outputs}"
            )
        self.head = head
        self.alpha = Alpha(alpha, self._rates(alpha), init=alpha_init, learned=alpha_learned)
        self.num_features, self.steps = num_features, steps
        self._kept = Kept()

    def features(self, x: Tensor) -> Tensor:
        """z = μ_θ(x): ``(B, d)``."""
        z: Tensor = self.backbone(x)
        if z.ndim != 2 or z.shape[1] != self.num_features:
            raise ValueError(f"backbone: expected features (B, {self.num_features}), got {tuple(z.shape)}")
        return z

    def forward(self, x: Tensor, rows: Tensor | None = None) -> Tensor:
        """``rows (B,)`` are the training rows of the batch: none is adapted by an entry it has become.

        They matter in training, and to a dictionary that started from rows (``init="rows"``).
        """
        z = self.features(x)
        if self.training:
            keys, values, without = self.dictionary.draw(len(z), rows)
            known = self._neighborhood_of(keys, values, constant=False)
        else:
            known, without = self._neighborhood(), None
        return self._adapted(z, self._attention(z, known, without)[0], known)

    def unadapted(self, x: Tensor) -> Tensor:
        """The head before adaptation."""
        out: Tensor = self.head(self.features(x))
        return out

    def compare(self, x: Tensor) -> Comparison:
        """Outputs before and after adaptation and the attention, from one pass of the backbone.

        All entries are used, also in training mode.
        """
        z, known = self.features(x), self._neighborhood()
        ω = self._attention(z, known)[0]
        return Comparison(before=self.head(z), after=self._adapted(z, ω, known), attention=ω)

    def attention(self, x: Tensor) -> Tensor:
        """ω(z, k) over all entries: ``(B, S)``."""
        return self._attention(self.features(x), self._neighborhood())[0]

    @torch.no_grad()
    def predict(self, x: Tensor) -> Tensor:
        """Labels ``(B,)`` of a classifier, outputs ``(B, num_outputs)`` of a regressor.

        Labels are the arg-max of the logits, for less work where the head knows a way. All entries
        are used, also in training mode.
        """
        (z,) = at_least_float32(self.features(x))
        known = self._neighborhood()
        ω, sim = self._attention(z, known)
        if self.dictionary.num_classes is None:
            return self._adapted(z, ω, known)
        return self.head.labels_by(
            z,
            known.near,
            known.bounds,
            ω,
            alpha=self.alpha(),
            steps=self.steps,
            cosines=sim if known.of_keys else None,
        )

    @torch.no_grad()
    def explain(self, x: Tensor, k: int = 5) -> Explanation:
        """The ``k`` entries with the most weight for each instance, and what each did.

        Example:
            >>> import torch
            >>> model = MetaNeighborhoods(torch.nn.Identity(), num_features=4, num_classes=3, S=20)
            >>> why = model.eval().explain(torch.randn(2, 4), k=5)
            >>> why.entries.shape, why.weights.shape, why.classes.shape, why.moved.shape
            (torch.Size([2, 5]), torch.Size([2, 5]), torch.Size([2, 5]), torch.Size([2, 5]))
        """
        z = self.features(x)
        known = self._neighborhood()
        return explain(
            lambda ω: self._adapted(z, ω, known),
            self.head(z),
            self._attention(z, known)[0],
            self.dictionary.values,
            k,
            classes=self.dictionary.num_classes is not None,
        )

    def train(self, mode: bool = True) -> Self:
        """Set the mode, as every module does; in training nothing is kept between batches."""
        if mode:
            self._kept.drop()
        return super().train(mode)

    def _adapted(self, z: Tensor, ω: Tensor, known: Neighborhood) -> Tensor:
        (z,) = at_least_float32(z)
        return self.head.adapted_by(z, known.near, ω, alpha=self.alpha(), steps=self.steps)

    def _attention(
        self, z: Tensor, known: Neighborhood, without: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """ω and the similarities it is of."""
        _checks.neighbors(z, known.keys, names=("features", "keys"))
        sim = _attention.scores(self.dictionary.measured(z), known.index, known.similarity)
        return _attention.softmax(sim, 1 / self.dictionary.temperature, without=without), sim

    def _neighborhood(self) -> Neighborhood:
        """All entries, from what was kept if that may be used."""
        of = self.dictionary
        parts = [*of.parameters(), *of.buffers(), *self.head.parameters(), *self.head.buffers()]
        if self.training or (torch.is_grad_enabled() and any(t.requires_grad for t in parts)):
            return self._neighborhood_of(of.keys, of.values, constant=False)
        settings = (of.similarity, of.sharpening, self.head)
        return self._kept.get(
            settings, parts, lambda: self._neighborhood_of(of.keys, of.values, constant=True)
        )

    def _neighborhood_of(self, keys: Tensor, values: Tensor, *, constant: bool) -> Neighborhood:
        return Neighborhood(keys, values, self.dictionary, self.head, constant=constant)

    def _rates(self, alpha: str) -> int | None:
        """How many rates α needs for this head; refuses the ones the head has no use for."""
        if alpha == "scalar":
            return None
        if alpha == "layer":
            layers = getattr(self.head, "layers", None)
            if layers is None:
                raise ValueError("alpha='layer': expected an MLP head, got " + type(self.head).__name__)
            return len(layers)
        if isinstance(self.head, MLPHead):
            raise ValueError(f"alpha of an MLP head: expected scalar or layer, got {alpha}")
        return self.dictionary.num_features


def _head(
    name: str,
    d: int,
    num_classes: int | None,
    num_outputs: int | None,
    hidden: tuple[int, ...],
    activation: str,
) -> Head:
    _checks.one_of("head", name, HEADS)
    if name == "mlp":
        return MLPHead(d, num_outputs, num_classes=num_classes, hidden=hidden, activation=activation)
    if num_classes is not None and name == "cosine":
        return CosineHead(d, num_classes)
    if num_classes is not None and name == "dot":
        return DotHead(d, num_classes)
    raise ValueError(f"head for targets: expected mlp, got {name}")
