"""What MAXL's two networks are trained on: sub-class labels, the focal loss, the labels' entropy.

Every loss is a sum over the rows at hand divided by ``count``. With the size of the whole batch as
``count``, the losses (and gradients) of the parts of a batch add up to those of the batch.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from mn.functional import _checks
from mn.functional._attention import at_least_float32

Reduce = Callable[[Tensor], Tensor]


def identity(tensor: Tensor) -> Tensor:
    """The sum over processes when there is one."""
    return tensor


def masked_softmax(logits: Tensor, labels: Tensor, *, subclasses: int) -> Tensor:
    r"""A softmax over the ψ sub-classes of each row's primary class; exactly 0 elsewhere.

    .. math:: \hat y_k = \frac{[k \in K(y)]\, e^{l_k}}{\sum_{k' \in K(y)} e^{l_{k'}}}, \qquad
              K(y) = \{\psi y, \dots, \psi y + \psi - 1\}

    Shape:
        logits ``(B, C·ψ)``, labels ``(B,)`` -> ``(B, C·ψ)``

    Example:
        >>> masked_softmax(torch.zeros(1, 6), torch.tensor([1]), subclasses=2)
        tensor([[0.0000, 0.0000, 0.5000, 0.5000, 0.0000, 0.0000]])
    """
    _checks.at_least("subclasses", subclasses, 1)
    _checks.vector("labels", labels, len(logits))
    _checks.matrix("logits", logits)
    if logits.shape[1] % subclasses:
        raise ValueError(f"logits: expected a multiple of {subclasses} columns, got {logits.shape[1]}")
    (logits,) = at_least_float32(logits)
    own = labels[:, None] * subclasses + torch.arange(subclasses, device=labels.device)  # (B, ψ)
    return torch.zeros_like(logits).scatter(1, own, logits.gather(1, own).softmax(1))


def focal_costs(logits: Tensor, *, gamma: float = 2.0) -> Tensor:
    r""":math:`-(1-p_k)^\gamma \log p_k` of every class, with :math:`p` the softmax: ``(B, K) -> (B, K)``."""
    (logits,) = at_least_float32(logits)
    log_p = logits.log_softmax(1)
    # expm1 keeps 1 − p where p is near 1
    return -((-log_p.expm1()) ** gamma) * log_p


def focal_loss(logits: Tensor, target: Tensor, *, gamma: float = 2.0, count: int | None = None) -> Tensor:
    r"""The focal loss :math:`\frac1N \sum_n \sum_k -t_{nk} (1 - p_{nk})^\gamma \log p_{nk}`.

    Args:
        logits: of the classes.
        target: whole numbers ``(B,)``, the classes; or real ones ``(B, K)``, a weight for each class.
        gamma: γ; 0 gives the cross entropy.
        count: N. By default B, the mean over the batch.

    Shape:
        ``(B, K), (B,) or (B, K) -> ()``

    Example:
        >>> focal_loss(torch.zeros(1, 2), torch.tensor([1]))  # (1/2)² log 2
        tensor(0.1733)
    """
    _checks.matrix("logits", logits)
    costs = focal_costs(logits, gamma=gamma)
    if target.is_floating_point():
        _checks.matrix("target", target, rows=logits.shape[0], columns=logits.shape[1])
        total = (target * costs).sum()
    else:
        _checks.vector("target", target, len(logits))
        total = costs.gather(1, target[:, None]).sum()
    return total / (len(logits) if count is None else count)


def entropy(labels: Tensor, *, count: int | None = None, reduce: Reduce = identity) -> Tensor:
    r"""The entropy of the *mean* label of a batch, as the authors compute it.

    .. math:: H = -\sum_k \bar y_k \log \bar y_k, \qquad \bar y_k = \frac1N \sum_n \hat y_{nk}

    A generator that gives all rows of a class the same sub-class makes an auxiliary task that says no
    more than the primary one. A large H prevents that: it asks for sub-classes that are used equally
    often *over the batch*. The mean of the rows' own entropies would ask each label to be uniform, and so
    to say nothing.

    Args:
        labels: of the rows this process holds.
        count: N, the rows in all processes. By default B.
        reduce: gives the sum of a tensor over all processes. It may write in place, and
            need not be differentiable.

    Returns:
        This process's share of H: the shares add up to H, and their gradients to that of H.

    Shape:
        ``(B, K) -> ()``

    Example:
        >>> entropy(torch.eye(2))  # log 2: every label is certain, but they differ
        tensor(0.6931)
    """
    _checks.matrix("labels", labels)
    (labels,) = at_least_float32(labels)
    count = len(labels) if count is None else count
    own = labels.sum(0) / count  # (K,), adds up to ȳ over the processes
    mean = reduce(own.detach().clone())  # a copy: collectives write in place
    # A class that is not in the batch has ȳ = 0, where 0·log 0 = 0.
    log_mean = mean.clamp_min(torch.finfo(own.dtype).tiny).log()
    # ∂H/∂ȳ = −(log ȳ + 1). The 1 comes from ȳ inside the logarithm, to which the other processes add;
    # written out it needs no gradient from them. The term is zero.
    return -(own * log_mean + own - own.detach()).sum()
