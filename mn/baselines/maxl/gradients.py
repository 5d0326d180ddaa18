r"""The gradient of the label generator: through one look-ahead step of the network.

With :math:`\theta` the network's parameters and :math:`\eta` the generator's,

.. math::
    \theta'(\eta) &= \theta - r\,(\nabla_\theta [L_1(\theta) + L_2(\theta, \eta)] + \lambda\theta) \\
    \nabla_\eta L_1(\theta'(\eta)) &= -r\, \nabla_\eta \langle \nabla_\theta L_2(\theta, \eta), v \rangle,
    \qquad v = \nabla L_1(\theta')

:math:`L_2 = \frac1N \sum_{nk} \hat y_{nk}(\eta)\, c_{nk}(\theta)` is linear in the labels, and only the
labels depend on :math:`\eta`. What is left of the second derivative is therefore the slope of the costs
:math:`c` along :math:`v`, a ``(B, C·ψ)`` tensor, and one backward pass of the generator:

.. math:: -\frac{r}{N} \sum_{nk} \langle \nabla_\theta c_{nk}, v \rangle \, \nabla_\eta \hat y_{nk}

The primary loss never needs a second derivative, and no graph but the generator's outlives its pass.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.func import functional_call

from mn.baselines.maxl.losses import Reduce, entropy, focal_costs, focal_loss, identity
from mn.baselines.maxl.networks import LabelGenerator, MAXLNetwork
from mn.functional import _checks

FORMS = ("exact", "finite")
STEP = 0.01  # the length of the finite difference's step, in all of θ

_Function = Callable[[dict[str, Tensor]], Tensor]  # of the parameters


def generator_gradients(
    network: MAXLNetwork,
    generator: LabelGenerator,
    x: Tensor,
    y: Tensor,
    *,
    rate: float,
    weight_decay: float = 0.0,
    entropy_weight: float = 0.2,
    gamma: float = 2.0,
    form: str = "exact",
    count: int | None = None,
    reduce: Reduce = identity,
) -> list[Tensor]:
    r"""Gradients of :math:`L_1(\theta'(\eta)) - w H` in η, H being :func:`entropy` of the labels.

    The network is left as it was: parameters, ``.grad``, buffers. The generator is called once, so its
    own BatchNorms count the batch; its ``.grad`` are left alone. All passes over the network at θ and
    beside it see the same dropout, the one at θ' its own, in both forms the same.

    The step is one of plain SGD, without the momentum of the network's optimiser. Unlike the authors'
    finite-difference code, where the entropy is lost on the way, both forms have it in the gradient.

    Args:
        network: θ.
        generator: η.
        x, y: inputs and classes ``(B,)``.
        rate: r, the learning rate of the look-ahead step.
        weight_decay: λ, of the same.
        entropy_weight: w.
        gamma: of the focal loss.
        form: how the slope is found. ``"exact"``: by autograd, twice through the auxiliary loss.
            ``"finite"``: by a central difference with θ ± εv, ε = 0.01/‖v‖, for less memory and
            without second derivatives; in full precision also under autocast, which would round
            the difference away.
        count: N, the rows in all processes. By default B.
        reduce: gives the sum of a tensor over all processes. It is called three times, in the same
            order by all: with the mean label ``(C·ψ,)``, the look-ahead gradient ``(P,)`` and v ``(P,)``,
            none of which requires a gradient; it may write in place, and need not be differentiable.

    Returns:
        One gradient for each of ``generator.parameters()`` that requires one, in that order. With several
        processes they are *shares*: the caller must add them (not average) over the processes, and nothing
        else. The sum is the gradient for the batch of ``count`` rows as long as both networks treat rows
        alike wherever they are, that is, BatchNorms share their statistics.
    """
    _checks.one_of("form", form, FORMS)
    count = len(x) if count is None else count
    theta = {name: p.detach() for name, p in network.named_parameters() if p.requires_grad}
    sizes = [p.numel() for p in theta.values()]

    def unflatten(flat: Tensor) -> dict[str, Tensor]:
        parts = flat.split(sizes)
        return {name: part.view_as(p) for (name, p), part in zip(theta.items(), parts, strict=True)}

    labels = generator(x, y)  # (B, C·ψ)
    regulariser = entropy(labels, count=count, reduce=reduce)

    dropout = _random_state(x.device)

    def look_ahead(at: dict[str, Tensor]) -> Tensor:
        primary, auxiliary = _both(network, at, x)
        loss = focal_loss(primary, y, gamma=gamma, count=count)
        return loss + focal_loss(auxiliary, labels.detach(), gamma=gamma, count=count)

    step = unflatten(reduce(_flat_gradient(look_ahead, theta)))
    ahead = {name: p - rate * (step[name] + weight_decay * p) for name, p in theta.items()}

    def primary_loss(at: dict[str, Tensor]) -> Tensor:
        return focal_loss(_both(network, at, x)[0], y, gamma=gamma, count=count)

    v = unflatten(reduce(_flat_gradient(primary_loss, ahead)))

    def costs(at: dict[str, Tensor]) -> Tensor:
        with _replayed(dropout, x.device):
            return focal_costs(_both(network, at, x)[1], gamma=gamma)

    slope = _exact_slope(costs, theta, v) if form == "exact" else _finite_slope(costs, theta, v, x.device)
    objective = -rate / count * (labels * slope).sum() - entropy_weight * regulariser
    eta = [p for p in generator.parameters() if p.requires_grad]
    return list(torch.autograd.grad(objective, eta, materialize_grads=True))


def _exact_slope(costs: _Function, theta: dict[str, Tensor], v: dict[str, Tensor]) -> Tensor:
    """⟨∇c_nk, v⟩ for all n, k at once: Σ w_nk⟨∇c_nk, v⟩ is linear in w, so its gradient in w is just that."""
    at = _leaves(theta)
    c = costs(at)
    w = torch.zeros_like(c, requires_grad=True)
    gradients = torch.autograd.grad(c, list(at.values()), w, create_graph=True, materialize_grads=True)
    along = torch.stack([(g * v[name]).sum() for name, g in zip(at, gradients, strict=True)]).sum()
    return torch.autograd.grad(along, w)[0]


def _finite_slope(
    costs: _Function, theta: dict[str, Tensor], v: dict[str, Tensor], device: torch.device
) -> Tensor:
    """The same from two values of c, each a step of length ``STEP`` from θ."""
    norm: Tensor = torch.stack([part.norm() for part in v.values()]).norm()
    ε = STEP / norm.clamp_min(torch.finfo(norm.dtype).tiny)  # v = 0 gives a slope of 0
    with torch.no_grad(), torch.autocast(device.type, enabled=False):
        above = costs({name: p + ε * v[name] for name, p in theta.items()})
        below = costs({name: p - ε * v[name] for name, p in theta.items()})
    slope: Tensor = (above - below) / (2 * ε)
    return slope


def _flat_gradient(function: _Function, at: dict[str, Tensor]) -> Tensor:
    """The gradient of a scalar function of the parameters, as one vector; 0 for those it does not use."""
    leaves = _leaves(at)
    gradients = torch.autograd.grad(function(leaves), list(leaves.values()), materialize_grads=True)
    return torch.cat([g.flatten() for g in gradients])


def _leaves(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.detach().requires_grad_() for name, tensor in tensors.items()}


class _Both(nn.Module):
    """``network.both`` as a forward, which is all that ``functional_call`` can call."""

    def __init__(self, network: MAXLNetwork) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self.network.both(x)


def _both(network: MAXLNetwork, theta: dict[str, Tensor], x: Tensor) -> tuple[Tensor, Tensor]:
    """``network.both(x)`` with other parameters, and with copies of its buffers to write to."""
    buffers = {name: buffer.clone() for name, buffer in network.named_buffers()}
    tensors = {f"network.{name}": tensor for name, tensor in (theta | buffers).items()}
    both: tuple[Tensor, Tensor] = functional_call(_Both(network), tensors, (x,))
    return both


def _random_state(device: torch.device) -> tuple[Tensor, Tensor | None]:
    return torch.get_rng_state(), torch.cuda.get_rng_state(device) if device.type == "cuda" else None


@contextmanager
def _replayed(state: tuple[Tensor, Tensor | None], device: torch.device) -> Iterator[None]:
    """The random numbers that came after ``state`` once more; then on from where they were."""
    cpu, cuda = state
    with torch.random.fork_rng(devices=[] if cuda is None else [device]):
        torch.set_rng_state(cpu)
        if cuda is not None:
            torch.cuda.set_rng_state(cuda, device)
        yield
