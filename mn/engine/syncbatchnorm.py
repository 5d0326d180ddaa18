"""BatchNorm over the global batch: the same statistics on every rank, whatever its share of the rows.

PyTorch's own ``nn.SyncBatchNorm`` refuses tensors on a CPU and is not differentiable twice, which MAXL's
look-ahead step needs.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.modules.batchnorm import _BatchNorm

from mn.engine.distributed import in_group, sum_over_ranks
from mn.errors import MNError


class SynchronisedBatchNorm(_BatchNorm):
    r"""BatchNorm whose mean and variance in training are those of all ranks' rows together.

    Each rank sends its count, mean and sum of squared deviations :math:`(n_r, \mu_r, M_r)`; they are joined
    without subtracting large numbers from each other:

    .. math::
        n = \sum_r n_r, \qquad \mu = \frac{1}{n} \sum_r n_r \mu_r, \qquad
        \sigma^2 = \frac{1}{n} \sum_r \bigl(M_r + n_r (\mu_r - \mu)^2\bigr)

    One exchange forward and one backward, differentiable to any order. Shares may be unequal, or empty. Half
    precision is computed in float32. In evaluation, and without other ranks, it is plain BatchNorm.

    Shape:
        - ``(B, C)`` or ``(B, C, ...)`` -> the same, with B the rows of this rank
    """

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002
        if not (self.training and in_group()):
            return super().forward(input)
        self._check_input_dim(input)  # type: ignore[no-untyped-call]
        x = input.float() if input.dtype in (torch.bfloat16, torch.float16) else input
        n, μ, M = _joined(x)  # (), (C,), (C,)
        if x.shape[1] >= x.numel() and n.item() <= 1:  # only a rank with so few has to look
            raise ValueError(
                "expected more than 1 value per channel in the global batch in training, "
                f"got {int(n.item())} (this rank's share: {tuple(input.shape)})"
            )
        self._track(n, μ.detach(), M.detach())
        scale = (M / n + self.eps).rsqrt()
        if self.weight is not None:
            scale = scale * self.weight
        shift = -μ * scale
        if self.bias is not None:
            shift = shift + self.bias
        shape = (1, -1) + (1,) * (x.ndim - 2)
        # x·scale + shift keeps nothing for its backward pass but x, as the fused BatchNorm does
        return torch.addcmul(shift.view(shape), x, scale.view(shape)).to(input.dtype)

    @torch.no_grad()
    def _track(self, n: Tensor, μ: Tensor, M: Tensor) -> None:
        """Move the running statistics; the variance there is the unbiased one of the global batch."""
        if not self.track_running_stats or self.running_mean is None or self.running_var is None:
            return
        factor = 0.0 if self.momentum is None else self.momentum
        if self.num_batches_tracked is not None:
            self.num_batches_tracked.add_(1)
            if self.momentum is None:  # the average over all batches so far
                factor = 1.0 / float(self.num_batches_tracked)
        for running, new in (self.running_mean, μ), (self.running_var, M / (n - 1)):
            running.mul_(1 - factor).add_(new.to(running.dtype), alpha=factor)


class SynchronisedBatchNorm1d(SynchronisedBatchNorm, nn.BatchNorm1d):
    """For ``(B, C)`` or ``(B, C, L)``."""


class SynchronisedBatchNorm2d(SynchronisedBatchNorm, nn.BatchNorm2d):
    """For ``(B, C, H, W)``."""


class SynchronisedBatchNorm3d(SynchronisedBatchNorm, nn.BatchNorm3d):
    """For ``(B, C, D, H, W)``."""


SYNCHRONISED: dict[type[nn.Module], type[SynchronisedBatchNorm]] = {
    nn.BatchNorm1d: SynchronisedBatchNorm1d,
    nn.BatchNorm2d: SynchronisedBatchNorm2d,
    nn.BatchNorm3d: SynchronisedBatchNorm3d,
}


def synchronise_batchnorm(module: nn.Module) -> nn.Module:
    """Have every BatchNorm of a network use the statistics of the global batch.

    Args:
        module: changed in place. Each BatchNorm stays the object it is and only changes its class, so that
            its parameters, buffers, hooks and names in the state_dict stay, whoever holds them.

    Returns:
        The network.

    Raises:
        MNError: a BatchNorm of some other class, of which it cannot be known what it computes.

    Example:
        >>> network = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
        >>> type(synchronise_batchnorm(network)[1]).__name__
        'SynchronisedBatchNorm1d'
    """
    for name, part in module.named_modules():
        if type(part) in SYNCHRONISED:
            part.__class__ = SYNCHRONISED[type(part)]
        elif isinstance(part, _BatchNorm) and not isinstance(part, (SynchronisedBatchNorm, nn.SyncBatchNorm)):
            raise MNError(
                f"{type(part).__name__} at {name or 'the top'} cannot be synchronised over ranks: "
                "use nn.BatchNorm1d, 2d or 3d, or train in one process"
            )
    return module


def _joined(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """n, μ and the sum of squared deviations of all ranks' rows: ``(B, C, ...) -> (), (C,), (C,)``."""
    dims = [0, *range(2, x.ndim)]
    count = x.numel() // x.shape[1]
    if count:
        variance, μ = torch.var_mean(x, dims, correction=0)
        M = variance * count
    else:
        # zeros, but computed from x: the backward pass of this rank must take part in the exchange, too
        μ = M = x.sum(dims)
    own = torch.cat([x.new_tensor([count]), μ, M]).unsqueeze(0)  # (1, 1 + 2C)
    # a row for each rank: a sum of rows that are zero but for one is all of them, on all ranks
    rank, world = dist.get_rank(), dist.get_world_size()
    table = sum_over_ranks(F.pad(own, (0, 0, rank, world - 1 - rank)))
    counts, means, sums = table.split([1, len(μ), len(M)], 1)  # (W, 1), (W, C), (W, C)
    n = counts.sum()
    μ = (counts * means).sum(0) / n
    return n, μ, (sums + counts * (means - μ).square()).sum(0)
