"""The dictionary: how it starts, what it gives, what dropout leaves out."""

from __future__ import annotations

import copy
import re
from typing import Any

import pytest
import torch

from mn.nn import Dictionary
from mn.nn.dictionary import share_in_use

torch.manual_seed(0)
z = torch.randn(6, 4)


def test_values_of_classes_are_sharpened_probabilities() -> None:
    dictionary = Dictionary(50, 4, num_classes=3, sharpening=10.0)
    assert dictionary.raw_values is not None
    torch.testing.assert_close(dictionary.values, (10 * dictionary.raw_values).softmax(1))


def test_it_starts_as_the_paper_says() -> None:
    dictionary = Dictionary(4000, 8, num_classes=5)
    assert dictionary.raw_values is not None
    assert dictionary.keys.std().item() == pytest.approx(0.05, rel=0.05)
    assert dictionary.raw_values.std().item() == pytest.approx(0.01, rel=0.05)


def test_uniform_keys_fill_their_square() -> None:
    keys = Dictionary(4000, 2, num_classes=2, init="uniform", key_scale=2.0).keys
    assert keys.abs().max().item() == pytest.approx(2.0, rel=0.01)
    assert keys.mean().abs().item() < 0.1


def test_targets_start_over_their_range() -> None:
    values = Dictionary(4000, 2, num_outputs=1, value_range=(3.0, 5.0)).values
    assert values.min().item() == pytest.approx(3.0, abs=0.01)
    assert values.max().item() == pytest.approx(5.0, abs=0.01)


def test_fixed_classes_are_one_hot_and_no_parameter() -> None:
    dictionary = Dictionary(200, 2, num_classes=2, values="fixed")
    assert [name for name, _ in dictionary.named_parameters()] == ["keys"]
    assert set(dictionary.state_dict()) == {"keys", "fixed_values"}
    assert torch.equal(dictionary.values.sum(1), torch.ones(200))
    assert set(dictionary.values.unique().tolist()) == {0.0, 1.0}
    assert 60 < dictionary.values[:, 0].sum().item() < 140


@pytest.mark.parametrize("similarity", ["cosine", "euclidean"])
def test_attention_sums_to_one(similarity: str) -> None:
    ω = Dictionary(9, 4, num_classes=2, similarity=similarity).attend(z)
    torch.testing.assert_close(ω.sum(1), torch.ones(6))


@pytest.mark.parametrize("kept", [0.0, 0.5, 0.9])
def test_dropout_per_batch_leaves_entries_out(kept: float) -> None:
    dictionary = Dictionary(40, 4, num_classes=3, dropout=1 - kept if kept else 0.0)
    keys, values, ω = dictionary(z)
    expected = round(40 * kept) if kept else 40
    assert (keys.shape, values.shape, ω.shape) == ((expected, 4), (expected, 3), (6, expected))
    torch.testing.assert_close(ω.sum(1), torch.ones(6))


def test_dropout_per_instance_leaves_half_out_for_each() -> None:
    dictionary = Dictionary(40, 4, num_classes=3, dropout=0.5, dropout_per="instance")
    keys, _, ω = dictionary(z)
    assert keys.shape == (40, 4)
    assert (ω > 0).sum(1).tolist() == [20] * 6
    assert len({tuple(row) for row in (ω > 0).tolist()}) == 6
    torch.testing.assert_close(ω.sum(1), torch.ones(6))


def test_what_is_kept_weighs_as_a_dictionary_of_its_own() -> None:
    dictionary = Dictionary(40, 4, num_classes=3, dropout=0.5, dropout_per="instance")
    _, _, ω = dictionary(z)
    whole = dictionary.attend(z) * (ω > 0)
    torch.testing.assert_close(ω, whole / whole.sum(1, keepdim=True))


@pytest.mark.parametrize("per", ["batch", "instance"])
def test_evaluation_uses_every_entry(per: str) -> None:
    dictionary = Dictionary(40, 4, num_classes=3, dropout=0.5, dropout_per=per).eval()
    keys, values, ω = dictionary(z)
    assert torch.equal(keys, dictionary.keys)
    assert torch.equal(values, dictionary.values)
    assert torch.equal(ω, dictionary.attend(z))


@pytest.mark.parametrize("per", ["batch", "instance"])
def test_at_least_one_entry_is_kept(per: str) -> None:
    dictionary = Dictionary(2, 4, num_classes=3, dropout=0.99, dropout_per=per)
    _, _, ω = dictionary(z)
    assert (ω > 0).sum(1).tolist() == [1] * 6


def twin(dictionary: Dictionary, seed: int) -> Dictionary:
    """The same entries, left out by a generator of its own."""
    made = copy.deepcopy(dictionary)
    made.generator = torch.Generator().manual_seed(seed)
    return made


@pytest.mark.parametrize("per", ["batch", "instance"])
def test_equal_generators_leave_out_the_same_entries(per: str) -> None:
    dictionary = Dictionary(40, 4, num_classes=3, dropout=0.5, dropout_per=per)
    one, same, other = (twin(dictionary, seed) for seed in (1, 1, 2))
    torch.manual_seed(1)
    found = one(z)
    torch.manual_seed(2)
    assert all(torch.equal(a, b) for a, b in zip(found, same(z), strict=True))
    assert not torch.equal(found[2], other(z)[2])
    assert not torch.equal(found[2], one(z)[2]), "every batch is a draw of its own"


@pytest.mark.parametrize("per", ["batch", "instance"])
def test_a_generator_of_its_own_leaves_the_global_one_alone(per: str) -> None:
    dictionary = twin(Dictionary(40, 4, num_classes=3, dropout=0.5, dropout_per=per), 1)
    before = torch.get_rng_state()
    dictionary(z)
    assert torch.equal(torch.get_rng_state(), before)


def test_shares_of_a_batch_leave_out_what_the_whole_batch_does() -> None:
    dictionary = Dictionary(40, 4, num_classes=3, dropout=0.5, dropout_per="instance")
    _, _, whole = twin(dictionary, 1).draw(6)
    assert whole is not None
    parts = []
    for first, last in ((0, 2), (2, 5), (5, 6)):
        part = twin(dictionary, 1)
        part.share = (first, 6)
        parts.append(part.draw(last - first)[2])
    assert torch.equal(torch.cat(parts), whole)


@pytest.mark.parametrize(
    ("weight", "share"),
    [
        ([0.25, 0.25, 0.25, 0.25], 1.0),
        ([1.0, 0.0, 0.0, 0.0], 0.25),
        ([0.5, 0.45, 0.026, 0.024], 0.75),
        ([0.5, 0.475, 0.025, 0.0], 0.75),
    ],
    ids=["even", "one", "about the bound", "at the bound"],
)
def test_an_entry_is_in_use_from_a_tenth_of_an_even_share(weight: list[float], share: float) -> None:
    assert share_in_use(torch.tensor(weight)) == share


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"size": 0}, "size: expected a whole number of at least 1, got 0"),
        (
            {"num_classes": None},
            "num_classes and num_outputs, got num_classes=None",
        ),
        ({"num_outputs": 1}, "expected one of num_classes and num_outputs, got num_classes=3"),
        ({"num_classes": 0}, "num_classes: expected a whole number of at least 1, got 0"),
        ({"dropout": 1.0}, "dropout: expected 0 <= dropout < 1, got 1.0"),
        ({"dropout_per": "row"}, "dropout_per: expected one of batch, instance, got 'row'"),
        ({"init": "ones"}, "init: expected one of gaussian, uniform, rows, got 'ones'"),
        ({"values": "free"}, "values: expected one of learned, fixed, got 'free'"),
        ({"similarity": "l1"}, "similarity: expected one of cosine, euclidean, rms, got 'l1'"),
        ({"temperature": 0}, "temperature: expected a number above 0, got 0"),
    ],
)
def test_bad_settings_are_refused(change: dict[str, Any], message: str) -> None:
    settings = {"size": 5, "num_features": 4, "num_classes": 3, **change}
    with pytest.raises(ValueError, match=re.escape(message)):
        Dictionary(settings.pop("size"), settings.pop("num_features"), **settings)


def test_features_of_the_wrong_size_are_refused() -> None:
    with pytest.raises(ValueError, match=re.escape("keys: expected shape (*, 5), got (8, 4)")):
        Dictionary(8, 4, num_classes=2).attend(torch.zeros(2, 5))
