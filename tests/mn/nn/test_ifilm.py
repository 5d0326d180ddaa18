"""iFiLM: the identity at first, behind every BatchNorm, one a layer."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from mn import functional
from mn.nn import IFiLM, insert_ifilm

torch.manual_seed(0)


@pytest.mark.parametrize("space", [(), (7,), (4, 4), (2, 3, 2)])
def test_it_starts_as_the_identity(space: tuple[int, ...]) -> None:
    a = torch.randn(2, 3, *space)
    assert torch.equal(IFiLM(3)(a), a)


def test_it_is_the_function_with_its_parameters() -> None:
    film, a = IFiLM(3, size=4, temperature=0.5), torch.randn(2, 3, 4, 4)
    nn.init.normal_(film.gammas)
    nn.init.normal_(film.betas)
    expected = functional.ifilm(a, film.keys, film.gammas, film.betas, temperature=0.5)
    torch.testing.assert_close(film(a), expected)


def test_every_parameter_learns() -> None:
    film = IFiLM(3, size=4)
    nn.init.normal_(film.gammas)
    film(torch.randn(2, 3, 4, 4)).square().sum().backward()
    assert all(p.grad is not None and bool((p.grad != 0).any()) for p in film.parameters())


def test_nearer_never_comes_to_mean_farther() -> None:
    film = IFiLM(3, size=4)
    nn.init.normal_(film.gammas)
    a = torch.randn(2, 3, 4, 4)
    before = film(a)
    with torch.no_grad():
        film.inverse_temperature.neg_()
    assert torch.equal(film(a), before)


def test_other_channels_are_refused() -> None:
    with pytest.raises(ValueError, match=r"expected \(B, 3, \.\.\.\), got \(2, 4, 5, 5\)"):
        IFiLM(3)(torch.zeros(2, 4, 5, 5))


def test_autocast_keeps_the_type_of_the_map() -> None:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert IFiLM(3)(torch.zeros(2, 3, 4, 4, dtype=torch.bfloat16)).dtype == torch.bfloat16


class Nested(nn.Module):
    """BatchNorms as attributes, in a list, and one used in two places."""

    def __init__(self) -> None:
        super().__init__()
        self.shared = nn.BatchNorm1d(4)
        self.same = self.shared
        self.blocks = nn.ModuleList([nn.Sequential(nn.Linear(4, 4), self.shared)])
        self.last = nn.BatchNorm1d(4)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.last(self.same(self.blocks[0](self.shared(x))))
        return out


def test_every_batch_norm_gets_one_and_the_output_stays() -> None:
    model = Nested().eval()
    x = torch.randn(5, 4)
    before = model(x)
    assert insert_ifilm(model, S_l=3) is model
    films = [m for m in model.modules() if isinstance(m, IFiLM)]
    assert [film.size for film in films] == [3, 3]
    assert torch.equal(model(x), before)
    assert model.same is model.shared is model.blocks[0][1]


def test_a_batch_norm_by_itself_is_returned_with_one() -> None:
    wrapped = insert_ifilm(nn.BatchNorm2d(6))
    assert isinstance(wrapped, nn.Sequential)
    assert isinstance(wrapped[1], IFiLM)


def test_it_has_the_type_of_its_network() -> None:
    model = insert_ifilm(nn.Sequential(nn.BatchNorm1d(4)).double())
    assert {p.dtype for p in model.parameters()} == {torch.float64}


def test_nothing_is_inserted_twice() -> None:
    model = insert_ifilm(insert_ifilm(nn.Sequential(nn.BatchNorm1d(4))))
    assert sum(isinstance(m, IFiLM) for m in model.modules()) == 1
