"""iFiLM: a scale and a shift of feature maps chosen per instance."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from mn import functional
from mn.functional import _checks


class IFiLM(nn.Module):
    r"""Instance-wise feature modulation behind a BatchNorm (Sec. 2.3).

    .. math::
        (\hat\gamma, \hat\beta) = \sum_j \omega(g, k_j)(\gamma_j, \beta_j), \qquad
        \mathrm{out} = (1 + \hat\gamma)\, a + \hat\beta, \qquad g = \mathrm{GlobalAvgPool}(a)

    It starts as the identity: γ and β start at 0. The inverse temperature of its attention is
    learned; its absolute value is used, so that nearer never comes to mean farther.

    Args:
        num_channels: channels of the feature map.
        size: S_l, the number of entries.
        temperature: where T, learned as 1/T, starts.
        key_std: standard deviation of the keys at the start.

    Shape:
        - ``(B, num_channels, ...)`` -> the same

    Example:
        >>> import torch
        >>> a = torch.randn(2, 3, 8, 8)
        >>> torch.equal(IFiLM(3)(a), a)
        True
    """

    def __init__(
        self, num_channels: int, *, size: int = 10, temperature: float = 0.2, key_std: float = 0.05
    ) -> None:
        super().__init__()
        _checks.at_least("num_channels", num_channels, 1)
        _checks.at_least("size", size, 1)
        _checks.positive("temperature", temperature)
        self.num_channels, self.size = num_channels, size
        self.initial_temperature, self.key_std = temperature, key_std
        self.keys = nn.Parameter(torch.empty(size, num_channels))
        self.gammas = nn.Parameter(torch.empty(size, num_channels))
        self.betas = nn.Parameter(torch.empty(size, num_channels))
        self.inverse_temperature = nn.Parameter(torch.empty(()))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Keys anew at random; scale and shift back to none."""
        nn.init.normal_(self.keys, std=self.key_std)
        nn.init.zeros_(self.gammas)
        nn.init.zeros_(self.betas)
        nn.init.constant_(self.inverse_temperature, 1 / self.initial_temperature)

    def forward(self, activations: Tensor) -> Tensor:
        if activations.ndim < 2 or activations.shape[1] != self.num_channels:
            raise ValueError(
                f"activations: expected (B, {self.num_channels}, ...), got {tuple(activations.shape)}"
            )
        return functional.modulate(
            activations, self.keys, self.gammas, self.betas, self.inverse_temperature.abs()
        )

    def extra_repr(self) -> str:
        return f"{self.num_channels}, size={self.size}, temperature={self.initial_temperature}"


class ModulatedConv2d(nn.Conv2d):
    """A convolution that :func:`insert_ifilm` puts an iFiLM behind, as it does behind a BatchNorm.

    The projections on the shortcuts of a pre-activation ResNet have no BatchNorm, but are modulated.
    """

    @property
    def num_features(self) -> int:
        return self.out_channels


_Modulated = nn.modules.batchnorm._BatchNorm, ModulatedConv2d


def insert_ifilm(module: nn.Module, S_l: int = 10) -> nn.Module:
    """Put an :class:`IFiLM` of ``S_l`` entries behind every BatchNorm (and :class:`ModulatedConv2d`).

    Args:
        module: changed in place. A BatchNorm by itself cannot be: use what is returned.
        S_l: entries of each.

    Returns:
        The network. At first it computes what it computed before. One that has its iFiLM already
        gets no other.

    Example:
        >>> from torch import nn
        >>> insert_ifilm(nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8)), S_l=4)[1][1]
        IFiLM(8, size=4, temperature=0.2)
    """
    if isinstance(module, _Modulated):
        film = IFiLM(module.num_features, size=S_l)
        where = next((t for t in (*module.parameters(), *module.buffers()) if t.is_floating_point()), None)
        if where is not None:
            film = film.to(where.device, where.dtype)
        return nn.Sequential(module, film)
    done: dict[nn.Module, nn.Module] = {}  # a BatchNorm used in two places stays one module
    _insert(module, S_l, done)
    return module


def _insert(module: nn.Module, S_l: int, done: dict[nn.Module, nn.Module]) -> None:
    # not named_children(), which leaves out the second name of a module that has two
    children = [(name, child) for name, child in module._modules.items() if child is not None]
    followers = [child for _, child in children[1:]] + [None]
    for (name, child), following in zip(children, followers, strict=False):
        if isinstance(following, IFiLM):
            continue  # it has one
        if child not in done:
            if isinstance(child, _Modulated):
                done[child] = insert_ifilm(child, S_l)
            else:
                done[child] = child
                _insert(child, S_l, done)
        setattr(module, name, done[child])
