"""A dictionary that starts from training rows: what it takes, and that no row is adapted by itself."""

from __future__ import annotations

import re

import pytest
import torch
from torch import Tensor, nn

from mn.nn import Dictionary, MetaNeighborhoods

N, D, C = 7, 4, 3
torch.manual_seed(0)
x = torch.randn(N, D)
labels = torch.tensor([0, 2, 1, 1, 0, 2, 2])
targets = torch.randn(N, 2)
ROWS = torch.arange(N)
HEADS = ["cosine", "dot", "mlp"]
PER = ["batch", "instance"]


def filled(size: int, rows: int = N, **settings: object) -> Dictionary:
    dictionary = Dictionary(size, D, num_outputs=2, init="rows", **settings)  # type: ignore[arg-type]
    dictionary.fill(x[:rows], targets[:rows], generator=torch.Generator().manual_seed(0))
    return dictionary


def origins_of(dictionary: Dictionary) -> Tensor:
    assert dictionary.origins is not None
    return dictionary.origins


def model_of(head: str, S: int = N, **settings: object) -> MetaNeighborhoods:
    """A model whose dictionary holds the rows, in training, with a large step."""
    torch.manual_seed(1)
    settings = {"dropout": 0.0, "alpha_init": 0.5, "T": 0.5, "similarity": "euclidean", **settings}
    model = MetaNeighborhoods(
        nn.Identity(), num_features=D, num_classes=C, S=S, head=head, hidden=(5,), activation="tanh",
        init="rows", **settings,  # type: ignore[arg-type]
    )  # fmt: skip
    model.dictionary.fill(x, labels, generator=torch.Generator().manual_seed(0))
    return model.train()


# --- how it starts


@pytest.mark.parametrize("size", [3, N])
def test_rows_are_drawn_without_repeats(size: int) -> None:
    rows = origins_of(filled(size)).tolist()
    assert len(set(rows)) == size
    assert set(rows) <= set(range(N))


@pytest.mark.parametrize("size", [8, 13, 14, 20])
def test_from_few_rows_each_is_drawn_as_often_as_any_other(size: int) -> None:
    counts = origins_of(filled(size)).bincount(minlength=N)
    assert (counts.min().item(), counts.max().item()) == (size // N, -(-size // N))


@pytest.mark.parametrize("values", ["learned", "fixed"])
@pytest.mark.parametrize("size", [5, 10])
def test_targets_and_keys_are_those_of_the_rows(size: int, values: str) -> None:
    dictionary = filled(size, values=values)
    rows = origins_of(dictionary)
    assert torch.equal(dictionary.keys, x[rows])
    assert torch.equal(dictionary.values, targets[rows])


@pytest.mark.parametrize("classes", [2, 3, 50])
@pytest.mark.parametrize("sharpening", [1.0, 10.0])
def test_the_class_of_a_row_has_nine_tenths(classes: int, sharpening: float) -> None:
    dictionary = Dictionary(5, D, num_classes=classes, init="rows", sharpening=sharpening)
    dictionary.fill(x, labels.clamp_max(classes - 1))
    expected = torch.full((5, classes), 0.1 / (classes - 1))
    own = labels.clamp_max(classes - 1)[origins_of(dictionary)]
    expected[torch.arange(5), own] = 0.9
    torch.testing.assert_close(dictionary.values, expected)


def test_classes_that_stay_are_one_hot() -> None:
    dictionary = Dictionary(5, D, num_classes=C, init="rows", values="fixed")
    dictionary.fill(x, labels)
    assert torch.equal(dictionary.values, nn.functional.one_hot(labels[origins_of(dictionary)], C).float())


def test_the_draw_is_the_generators() -> None:
    draws = []
    for seed in (3, 3, 4):
        dictionary = Dictionary(N, D, num_outputs=2, init="rows")
        torch.manual_seed(len(draws))
        dictionary.fill(x, targets, generator=torch.Generator().manual_seed(seed))
        draws.append(origins_of(dictionary))
    assert torch.equal(draws[0], draws[1])
    assert not torch.equal(draws[0], draws[2])


def test_what_is_filled_is_learned() -> None:
    dictionary = filled(5)
    assert {name for name, p in dictionary.named_parameters() if p.requires_grad} == {"keys", "raw_values"}
    assert all(p.grad_fn is None for p in dictionary.parameters())


def test_anew_no_entry_has_a_row() -> None:
    dictionary = filled(5)
    dictionary.reset_parameters()
    assert origins_of(dictionary).tolist() == [-1] * 5


def test_origins_are_part_of_the_state() -> None:
    dictionary = filled(5)
    other = Dictionary(5, D, num_outputs=2, init="rows")
    other.load_state_dict(dictionary.state_dict())
    assert torch.equal(origins_of(other), origins_of(dictionary))


@pytest.mark.parametrize("init", ["gaussian", "uniform"])
def test_a_random_dictionary_is_not_filled(init: str) -> None:
    dictionary = Dictionary(5, D, num_outputs=2, init=init)
    with pytest.raises(
        ValueError, match=f"expected a dictionary with init='rows' to fill, got init='{init}'"
    ):
        dictionary.fill(x, targets)
    assert "origins" not in dictionary.state_dict()


@pytest.mark.parametrize("rows", [0, 1])
def test_fewer_than_two_rows_are_refused(rows: int) -> None:
    dictionary = Dictionary(5, D, num_outputs=2, init="rows")
    with pytest.raises(ValueError, match=r"rows to fill a dictionary from: expected .* at least 2"):
        dictionary.fill(x[:rows], targets[:rows])


def test_a_single_entry_is_refused() -> None:
    with pytest.raises(ValueError, match=r"size of a dictionary of rows: expected .* at least 2, got 1"):
        Dictionary(1, D, num_outputs=2, init="rows")


def test_rows_of_the_wrong_size_are_refused() -> None:
    with pytest.raises(ValueError, match=re.escape("features: expected shape (*, 4), got (7, 5)")):
        Dictionary(5, D, num_outputs=2, init="rows").fill(torch.zeros(N, 5), targets)


# --- no row retrieves itself


@pytest.mark.parametrize("similarity", ["cosine", "euclidean", "rms"])
@pytest.mark.parametrize("size", [4, N, 2 * N + 3])
def test_in_training_a_row_has_no_weight_for_itself(size: int, similarity: str) -> None:
    dictionary = filled(size, similarity=similarity).train()
    ω = dictionary(x, ROWS)[2]
    own = ROWS[:, None] == origins_of(dictionary)
    assert bool(own.any())
    assert bool((ω[own] == 0).all())
    assert bool((ω[~own] > 0).all())
    torch.testing.assert_close(ω.sum(1), torch.ones(N))


def test_the_others_share_its_weight_in_proportion() -> None:
    dictionary = filled(N).train()
    ω = dictionary.attend(x).masked_fill(ROWS[:, None] == origins_of(dictionary), 0)
    torch.testing.assert_close(dictionary(x, ROWS)[2], ω / ω.sum(1, keepdim=True))


def test_rows_are_places_in_the_training_part_and_not_in_the_batch() -> None:
    dictionary = filled(N).train()
    order = torch.tensor([5, 2, 6])
    assert torch.equal(dictionary(x[order], order)[2], dictionary(x, ROWS)[2][order])


@pytest.mark.parametrize("per", PER)
@pytest.mark.parametrize("dropout", [0.3, 0.99])
@pytest.mark.parametrize(("size", "rows"), [(2, 2), (3, 2), (5, 2), (7, 7), (9, 4), (15, 7), (5, 7)])
def test_dropout_and_itself_never_leave_a_row_without_entries(
    size: int, rows: int, dropout: float, per: str
) -> None:
    dictionary = filled(size, rows, dropout=dropout, dropout_per=per).train()
    torch.manual_seed(0)
    for _ in range(20):
        keys, _, ω = dictionary(x[:rows], ROWS[:rows])
        own = (x[:rows, None] == keys).all(2)
        assert bool((ω[own] == 0).all())
        torch.testing.assert_close(ω.sum(1), torch.ones(rows))


@pytest.mark.parametrize("per", PER)
def test_dropout_of_rows_still_leaves_out_its_part(per: str) -> None:
    dictionary = filled(N, dropout=0.5, dropout_per=per).train()
    ω = dictionary(x)[2]
    assert (ω > 0).sum(1).tolist() == [round(N * 0.5)] * N


@pytest.mark.parametrize("head", HEADS)
def test_in_evaluation_nothing_is_left_out(head: str) -> None:
    model = model_of(head).eval()
    assert torch.equal(model(x, ROWS), model(x))
    ω = model.dictionary(x, ROWS)[2]
    torch.testing.assert_close(ω, model.dictionary.attend(x))
    assert (ω.argmax(1) == origins_of(model.dictionary).argsort()).all(), "nearest is itself"


@pytest.mark.parametrize("given", [None, ROWS + N], ids=["not given", "of others"])
def test_a_row_that_no_entry_started_as_sees_all(given: Tensor | None) -> None:
    dictionary = filled(N).train()
    assert torch.equal(dictionary(x, given)[2], dictionary.eval()(x)[2])


def test_rows_mean_nothing_to_a_random_dictionary() -> None:
    dictionary = Dictionary(N, D, num_outputs=2).train()
    assert torch.equal(dictionary(x, ROWS)[2], dictionary(x)[2])


def test_an_unfilled_dictionary_leaves_nothing_out() -> None:
    dictionary = Dictionary(N, D, num_outputs=2, init="rows").train()
    assert torch.equal(dictionary(x, ROWS)[2], dictionary(x)[2])


@pytest.mark.parametrize("steps", [1, 2])
@pytest.mark.parametrize("S", [N, 2 * N])
@pytest.mark.parametrize("head", HEADS)
def test_no_gradient_from_a_row_to_its_own_entry(head: str, S: int, steps: int) -> None:
    model = model_of(head, S, steps=steps)
    dictionary = model.dictionary
    assert dictionary.raw_values is not None
    out = model(x, ROWS)
    for row in range(N):
        own = origins_of(dictionary) == row
        for grad in torch.autograd.grad(
            out[row, 0], [dictionary.keys, dictionary.raw_values], retain_graph=True
        ):
            assert bool((grad[own] == 0).all())
            assert bool((grad[~own] != 0).any(1).all())


@pytest.mark.parametrize("per", PER)
@pytest.mark.parametrize("dropout", [0.0, 0.5])
@pytest.mark.parametrize("head", HEADS)
def test_in_training_the_value_of_its_own_entry_changes_no_output(
    head: str, dropout: float, per: str
) -> None:
    model = model_of(head, dropout=dropout, dropout_per=per)
    dictionary = model.dictionary
    torch.manual_seed(2)
    before = model(x, ROWS)
    changed = torch.zeros(N, dtype=torch.bool)
    for row in range(N):
        kept = dictionary.state_dict()["raw_values"].clone()
        with torch.no_grad():
            dictionary._raw[origins_of(dictionary) == row] = torch.tensor([3.0, -3.0, 1.0])
            torch.manual_seed(2)
            after = model(x, ROWS)
            dictionary._raw.copy_(kept)
        assert torch.equal(after[row], before[row])
        changed |= (after != before).any(1)
    assert bool(changed.all()), "the values of the others count"


@pytest.mark.parametrize("per", PER)
@pytest.mark.parametrize("head", HEADS)
def test_gradients_are_finite_with_as_few_entries_as_can_be(head: str, per: str) -> None:
    model = model_of(head, dropout=0.99, dropout_per=per)
    model(x, ROWS).square().sum().backward()
    assert [name for name, p in model.named_parameters() if p.grad is None] == []
    assert [
        n for n, p in model.named_parameters() if p.grad is not None and not p.grad.isfinite().all()
    ] == []


@pytest.mark.parametrize("per", PER)
def test_a_share_of_a_batch_leaves_out_what_the_whole_does(per: str) -> None:
    dictionary = filled(N, dropout=0.4, dropout_per=per).train()
    dictionary.generator = torch.Generator().manual_seed(5)
    whole = dictionary(x, ROWS)[2]
    dictionary.generator.manual_seed(5)
    dictionary.share = (3, N)
    torch.testing.assert_close(dictionary(x[3:], ROWS[3:])[2], whole[3:])


# --- what is loaded, and what is refused


def test_dropout_of_a_loaded_dictionary_leaves_every_row_an_entry_of_another() -> None:
    loaded = Dictionary(20, D, num_outputs=2, init="rows", dropout=0.99)
    loaded.load_state_dict(filled(20, rows=3, dropout=0.99).state_dict())
    for _ in range(20):
        _, _, without = loaded.train().draw(3, torch.arange(3))
        assert without is not None
        assert not without.all(1).any()


@pytest.mark.parametrize("strange", [[-1, 0, 1, 2], [2**45, 0, 0, 1]], ids=["some unknown", "large"])
def test_origins_of_any_kind_can_be_loaded(strange: list[int]) -> None:
    state = filled(4).state_dict() | {"origins": torch.tensor(strange)}
    loaded = Dictionary(4, D, num_outputs=2, init="rows")
    loaded.load_state_dict(state)
    assert loaded.least == 1 + max(strange.count(row) for row in strange if row >= 0)


@pytest.mark.parametrize(
    "wrong", [targets[:, 0], targets[:-1], targets[:, :1]], ids=lambda t: str(tuple(t.shape))
)
def test_targets_of_another_shape_are_refused(wrong: Tensor) -> None:
    dictionary = Dictionary(4, D, num_outputs=2, init="rows")
    with pytest.raises(ValueError, match=re.escape(f"targets: expected ({N}, 2), got {tuple(wrong.shape)}")):
        dictionary.fill(x, wrong)
