"""N processes compute what one process with the same global batch computes."""

from __future__ import annotations

import copy
import doctest
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional as F

from mn.engine import distributed, syncbatchnorm
from mn.engine.distributed import (
    VARIABLES,
    Ranks,
    any_rank,
    barrier,
    broadcast_object,
    current_ranks,
    data_parallel,
    global_mean,
    process_group,
    share,
    sum_figures,
    sum_over_ranks,
)
from mn.engine.syncbatchnorm import SynchronisedBatchNorm, synchronise_batchnorm
from mn.errors import MNError
from mn.nn import MetaNeighborhoods, insert_ifilm
from mn.nn.backbones import convnet4
from tests.conftest import ROOT
from tests.ranks import RankPool

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def two() -> Iterator[RankPool]:
    with RankPool(2) as pool:
        yield pool


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for name in (*VARIABLES, "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)
    return monkeypatch


def under_torchrun(environment: pytest.MonkeyPatch, rank: str, world: str) -> None:
    for name, value in zip(VARIABLES, (rank, world, rank), strict=True):
        environment.setenv(name, value)


class TestRanks:
    def test_no_variables_are_a_single_process(self, environment: pytest.MonkeyPatch) -> None:  # noqa: ARG002
        assert current_ranks() == Ranks(0, 1, 0)
        assert current_ranks().main

    def test_variables_of_torchrun_are_read(self, environment: pytest.MonkeyPatch) -> None:
        under_torchrun(environment, "3", "4")
        assert current_ranks() == Ranks(rank=3, world=4, local_rank=3)
        assert not current_ranks().main

    def test_half_an_environment_is_refused(self, environment: pytest.MonkeyPatch) -> None:
        environment.setenv("RANK", "0")
        with pytest.raises(MNError, match=r"no WORLD_SIZE and no LOCAL_RANK: start with torchrun"):
            current_ranks()

    @pytest.mark.parametrize(("rank", "world"), [("2", "2"), ("-1", "2"), ("one", "2")])
    def test_a_rank_that_cannot_be_is_refused(
        self, environment: pytest.MonkeyPatch, rank: str, world: str
    ) -> None:
        under_torchrun(environment, rank, world)
        with pytest.raises(MNError, match=f"got RANK={rank}, WORLD_SIZE=2"):
            current_ranks()


class TestShare:
    @pytest.mark.parametrize("world", [1, 2, 3, 8])
    @pytest.mark.parametrize("size", [0, 1, 5, 8, 128])
    def test_shares_are_the_batch_and_even(self, size: int, world: int) -> None:
        parts = [list(range(size)[share(size, Ranks(rank, world, rank))]) for rank in range(world)]
        assert [row for part in parts for row in part] == list(range(size))
        assert max(map(len, parts)) - min(map(len, parts)) <= 1


class TestSingleProcess:
    def test_there_is_no_group(self, environment: pytest.MonkeyPatch) -> None:  # noqa: ARG002
        with process_group(CPU) as ranks:
            assert ranks == Ranks()
            assert not dist.is_initialized()

    def test_torchrun_with_one_process_is_a_single_process(self, environment: pytest.MonkeyPatch) -> None:
        under_torchrun(environment, "0", "1")
        with process_group(CPU) as ranks:
            assert ranks.world == 1
            assert not dist.is_initialized()

    def test_sums_and_broadcasts_are_the_identity(self) -> None:
        x = torch.ones(2)
        barrier()
        assert sum_over_ranks(x) is x
        assert sum_figures({"loss": 2.0}) == {"loss": 2.0}
        assert [any_rank(flag) for flag in (False, True)] == [False, True]
        assert broadcast_object("plan") == "plan"

    def test_the_model_is_not_wrapped(self) -> None:
        model = nn.Linear(2, 2)
        assert data_parallel(model, CPU) is model

    @pytest.mark.parametrize("training", [True, False])
    def test_batchnorm_is_bit_for_bit_the_same(self, training: bool) -> None:
        plain = nn.BatchNorm2d(3).train(training)
        synchronised = synchronise_batchnorm(copy.deepcopy(plain))
        x = torch.randn(4, 3, 2, 2)
        assert torch.equal(plain(x), synchronised(x))
        for name, tensor in plain.state_dict().items():
            assert torch.equal(tensor, synchronised.state_dict()[name]), name


class TestInitialisation:
    def test_failure_is_one_line_that_says_what_to_do(self, environment: pytest.MonkeyPatch) -> None:
        under_torchrun(environment, "0", "2")
        with (
            pytest.raises(MNError, match=r"^rank 0 of 2 could not join .*MASTER_ADDR.*torchrun.*$"),
            process_group(CPU),
        ):
            pytest.fail("there is nobody to join")

    def test_more_ranks_than_cuda_devices_are_refused(self, environment: pytest.MonkeyPatch) -> None:
        there = torch.cuda.device_count()
        under_torchrun(environment, str(there), str(there + 2))
        with (
            pytest.raises(MNError, match=rf"local rank {there} has no CUDA device, there are {there} here"),
            process_group(torch.device("cuda")),
        ):
            pytest.fail("there is no device")

    def test_one_cuda_device_for_all_ranks_is_refused(self, environment: pytest.MonkeyPatch) -> None:
        under_torchrun(environment, "0", "2")
        with (
            pytest.raises(MNError, match="would put all 2 ranks on one device"),
            process_group(torch.device("cuda:0")),
        ):
            pytest.fail("both ranks would use it")


class TestSynchronise:
    def test_parameters_buffers_and_names_stay(self) -> None:
        model = insert_ifilm(convnet4(1), S_l=2)
        before = dict(model.named_parameters()) | dict(model.named_buffers())
        names = list(model.state_dict())
        assert synchronise_batchnorm(model) is model
        after = dict(model.named_parameters()) | dict(model.named_buffers())
        assert list(model.state_dict()) == names
        assert all(after[name] is before[name] for name in before)

    def test_every_batchnorm_beside_an_ifilm_is_found(self) -> None:
        model = synchronise_batchnorm(insert_ifilm(convnet4(1), S_l=2))
        found = [module for module in model.modules() if isinstance(module, nn.modules.batchnorm._BatchNorm)]
        assert len(found) == 4
        assert all(isinstance(module, SynchronisedBatchNorm) for module in found)

    def test_a_second_time_changes_nothing(self) -> None:
        once = synchronise_batchnorm(nn.BatchNorm1d(2))
        assert type(synchronise_batchnorm(once)) is type(once)

    def test_a_batchnorm_of_unknown_kind_is_refused(self) -> None:
        class Scaled(nn.BatchNorm2d):
            pass

        with pytest.raises(MNError, match="Scaled at 0 cannot be synchronised"):
            synchronise_batchnorm(nn.Sequential(Scaled(2)))


@pytest.mark.parametrize("module", [distributed, syncbatchnorm], ids=lambda module: module.__name__)
def test_examples_in_docstrings_run(module: ModuleType) -> None:
    result = doctest.testmod(module)
    assert result.attempted > 0
    assert result.failed == 0


# ---- BatchNorm: two ranks against the whole batch


def rows_of(ranks: Ranks, sizes: tuple[int, ...]) -> slice:
    start = sum(sizes[: ranks.rank])
    return slice(start, start + sizes[ranks.rank])


def normalise_twice(bn: nn.Module, x: Tensor, target: Tensor) -> dict[str, Tensor]:
    """Two batches through a BatchNorm; output and all derivatives, also those of a gradient's length."""
    bn(x.detach() * 0.5 - 1)
    x = x.clone().requires_grad_()
    out = bn(x)
    parameters = list(bn.parameters())
    first = torch.autograd.grad((out.sin() * target).sum(), [x, *parameters], create_graph=True)
    # the parameters' gradients are parts of a sum over the rows: what is squared must be the whole sum
    length = first[0].square().sum() + sum(
        sum_over_ranks(g).square().sum() / world() for g in first[1:]
    )  # each rank's share of it
    second = torch.autograd.grad(length, [x, *parameters])
    return {
        "out": out.detach(),
        "gradient of x": first[0].detach(),
        **{f"gradient {i}": g.detach() for i, g in enumerate(first[1:])},
        "second gradient of x": second[0],
        **{f"second gradient {i}": g for i, g in enumerate(second[1:])},
        **{f"buffer {name}": b for name, b in bn.named_buffers()},
    }


def world() -> int:
    return dist.get_world_size() if dist.is_initialized() else 1


def normalise_share(
    ranks: Ranks, bn: nn.Module, x: Tensor, target: Tensor, sizes: tuple[int, ...]
) -> dict[str, Tensor]:
    rows = rows_of(ranks, sizes)
    return normalise_twice(synchronise_batchnorm(bn), x[rows], target[rows])


BATCHNORMS = {
    "2d": (nn.BatchNorm2d(3), (3, 2, 2)),
    "1d": (nn.BatchNorm1d(3), (3,)),
    "sequence": (nn.BatchNorm1d(3), (3, 4)),
    "cumulative": (nn.BatchNorm2d(3, momentum=None), (3, 2, 2)),
    "not affine": (nn.BatchNorm2d(3, affine=False), (3, 2, 2)),
    "not tracked": (nn.BatchNorm2d(3, track_running_stats=False), (3, 2, 2)),
}


@pytest.mark.parametrize("sizes", [(4, 4), (5, 3), (1, 7), (8, 0), (0, 8)], ids=str)
@pytest.mark.parametrize("kind", BATCHNORMS)
def test_batchnorm_of_shares_is_that_of_the_batch(two: RankPool, kind: str, sizes: tuple[int, ...]) -> None:
    bn, shape = BATCHNORMS[kind]
    bn = copy.deepcopy(bn).double()
    torch.manual_seed(0)
    for parameter in bn.parameters():
        nn.init.normal_(parameter)
    x = 3 + torch.randn(8, *shape, dtype=torch.float64)
    target = torch.randn(8, *shape, dtype=torch.float64)
    of_ranks = two.run(normalise_share, bn, x, target, sizes)
    for name, expected in normalise_twice(bn, x, target).items():
        parts = [result[name] for result in of_ranks]
        if name.startswith("buffer"):  # the same on all ranks
            assert torch.equal(parts[0], parts[1]), name
            actual = parts[0]
        elif name.endswith(("out", "of x")):  # row by row
            actual = torch.cat(parts)
        else:  # of parameters: each rank has the part of its rows
            actual = sum(parts)
        torch.testing.assert_close(actual, expected, rtol=1e-9, atol=1e-11, msg=lambda m, n=name: f"{n}: {m}")


def normalise_bf16(ranks: Ranks, x: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
    bn = synchronise_batchnorm(nn.BatchNorm2d(2))
    return bn(x[share(len(x), ranks)]).detach(), bn.state_dict()


def test_bf16_is_computed_in_float32(two: RankPool) -> None:
    torch.manual_seed(0)
    x = (20 + torch.randn(7, 2, 3, 3)).bfloat16()
    plain = nn.BatchNorm2d(2)
    expected = plain(x.float())
    outs, buffers = zip(*two.run(normalise_bf16, x), strict=True)
    assert outs[0].dtype == torch.bfloat16
    torch.testing.assert_close(torch.cat(outs), expected.bfloat16(), rtol=1e-2, atol=1e-2)
    torch.testing.assert_close(buffers[0]["running_var"], plain.running_var, rtol=1e-5, atol=0)


def evaluate_alone(ranks: Ranks, x: Tensor) -> Tensor | None:
    bn = synchronise_batchnorm(nn.BatchNorm2d(2)).eval()
    return bn(x).detach() if ranks.main else None


def test_evaluation_needs_no_other_rank(two: RankPool) -> None:
    x = torch.randn(3, 2, 2, 2)
    assert torch.equal(two.run(evaluate_alone, x)[0], nn.BatchNorm2d(2).eval()(x))


def normalise_one_row(ranks: Ranks) -> str:
    bn = synchronise_batchnorm(nn.BatchNorm1d(2))
    with pytest.raises(ValueError, match="more than 1 value per channel") as raised:
        bn(torch.ones(1, 2)[share(1, ranks)])
    return str(raised.value)


def test_a_batch_of_one_value_is_refused_on_all_ranks(two: RankPool) -> None:
    assert all("got 1" in message for message in two.run(normalise_one_row))


# ---- collectives


def gather_figures(ranks: Ranks) -> dict[str, float]:
    return sum_figures({"loss": 0.5, "correct": 3.0} if ranks.main else {"loss": 0.25, "late": 1.0})


def test_figures_are_summed_also_those_one_rank_lacks(two: RankPool) -> None:
    first, second = two.run(gather_figures)
    assert first == {"loss": 0.75, "correct": 3.0, "late": 1.0}
    assert list(first.items()) == list(second.items())


def ask_any(ranks: Ranks) -> list[bool]:
    return [any_rank(flag) for flag in (False, ranks.main, not ranks.main, True)]


def test_any_rank_gives_all_the_same_answer(two: RankPool) -> None:
    assert two.run(ask_any) == [[False, True, True, True]] * 2


def receive(ranks: Ranks) -> dict[str, Any]:
    barrier()
    return broadcast_object({"from": ranks.rank})


def test_objects_of_rank_0_reach_all(two: RankPool) -> None:
    assert two.run(receive) == [{"from": 0}] * 2


def look_ahead(ranks: Ranks, x: Tensor, y: Tensor) -> tuple[float, Tensor]:
    """Part of this rank in ∂/∂ψ L(θ − 0.5 ∇_θ L_ψ(θ)), as in MAXL; losses are means of the global batch."""
    n, rows = len(x), share(len(x), ranks)
    x, y = x[rows], y[rows]
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Tanh(), nn.Linear(4, 1)).double()
    synchronise_batchnorm(network)
    ψ = torch.ones(3, 1, dtype=torch.float64, requires_grad=True)
    θ = dict(network.named_parameters())
    own = (network(x) - x @ ψ).square().sum() / n
    gradients = torch.autograd.grad(own, list(θ.values()), create_graph=True)
    moved = {name: p - 0.5 * sum_over_ranks(g) for (name, p), g in zip(θ.items(), gradients, strict=True)}
    loss = (torch.func.functional_call(network, moved, x) - y).square().sum() / n
    return loss.item(), torch.autograd.grad(loss, ψ)[0]


def test_a_look_ahead_step_has_the_gradient_of_one_process(two: RankPool) -> None:
    torch.manual_seed(1)
    x, y = torch.randn(7, 3, dtype=torch.float64), torch.randn(7, 1, dtype=torch.float64)
    losses, gradients = zip(*two.run(look_ahead, x, y), strict=True)
    loss, gradient = look_ahead(Ranks(), x, y)
    assert sum(losses) == pytest.approx(loss, rel=1e-12)
    torch.testing.assert_close(sum(gradients), gradient, rtol=1e-10, atol=0)


# ---- training


def train(
    ranks: Ranks, sizes: tuple[int, ...], dtype: torch.dtype, head: str, dropout: float
) -> tuple[list[float], dict[str, Tensor]]:
    """A step of AdamW on each of some global batches; their losses, and the weights in the end."""
    torch.manual_seed(ranks.rank)  # only rank 0's weights count
    backbone = insert_ifilm(convnet4(1), S_l=3)
    model = MetaNeighborhoods(backbone, num_features=192, num_classes=3, S=12, head=head, dropout=dropout)
    synchronise_batchnorm(model).to(dtype)
    parallel = data_parallel(model, CPU)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    data = torch.Generator().manual_seed(5)
    losses = []
    for iteration, size in enumerate(sizes):
        x = torch.rand(size, 1, 8, 8, generator=data).to(dtype)
        y = torch.randint(3, (size,), generator=data)
        rows = share(size, ranks)
        torch.manual_seed(iteration)  # the same dictionary entries on all ranks
        own = F.cross_entropy(parallel(x[rows]), y[rows], reduction="sum")
        losses.append(sum_figures({"loss": own.item()})["loss"] / size)
        optimizer.zero_grad(set_to_none=True)
        global_mean(own, size, ranks).backward()
        optimizer.step()
    return losses, {name: tensor.detach() for name, tensor in model.state_dict().items()}


UNEVEN = (6, 5, 6, 3)
EMPTY = (6, 5, 1, 6)  # the third leaves rank 0 without a row


@pytest.mark.parametrize(("head", "dropout"), [("cosine", 0.5), ("cosine", 0.0), ("dot", 0.5)])
class TestTraining:
    def test_losses_are_those_of_one_process(self, two: RankPool, head: str, dropout: float) -> None:
        # float64: where a gradient is rounding, AdamW makes a step of lr of it
        setting = (UNEVEN, torch.float64, head, dropout)
        expected, _ = train(Ranks(), *setting)
        for losses, _ in two.run(train, *setting):
            assert losses == pytest.approx(expected, abs=1e-9)

    def test_losses_are_the_same_with_an_empty_share(self, two: RankPool, head: str, dropout: float) -> None:
        # float64: after a batch of one row, float32 is 3e-4 off in one process, too
        setting = (EMPTY, torch.float64, head, dropout)
        expected, _ = train(Ranks(), *setting)
        for losses, _ in two.run(train, *setting):
            assert losses == pytest.approx(expected, abs=1e-9)

    def test_ranks_end_with_the_same_weights(self, two: RankPool, head: str, dropout: float) -> None:
        (_, first), (_, second) = two.run(train, UNEVEN, torch.float32, head, dropout)
        assert [name for name in first if not torch.equal(first[name], second[name])] == []


# ---- failures


def fail_on_rank_1(ranks: Ranks) -> None:
    if not ranks.main:
        raise MNError("the disk is full")
    barrier()


def test_others_are_told_of_a_rank_that_failed(two: RankPool) -> None:
    waiting, failed = two.outcomes(fail_on_rank_1)
    assert isinstance(failed, MNError)
    assert str(failed) == "the disk is full"
    assert isinstance(waiting, MNError)
    assert str(waiting).startswith("rank 0 of 2 lost contact with the other ranks")


SCRIPT = """
import signal, sys, torch
from mn.engine.distributed import barrier, process_group
from mn.errors import MNError
with process_group(torch.device("cpu")) as ranks:
    barrier()
    if not ranks.main:
        raise MNError("the disk is full")
    signal.pause()  # waits for nobody: only torchrun can end it
"""


def test_torchrun_ends_all_ranks_when_one_fails(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT, encoding="utf-8")
    command = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", str(script)]
    ended = subprocess.run(
        [sys.executable, *command],
        capture_output=True,
        text=True,
        timeout=600,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
    )
    assert ended.returncode != 0
    assert "the disk is full" in ended.stderr
