"""Attention statistics in batches against the whole attention at once."""

from __future__ import annotations

import pytest
import torch

from mn.analysis.attention import AttentionStatistics, attention_statistics
from mn.data.split import Part
from mn.nn import MetaNeighborhoods


def test_batches_add_up_to_the_whole() -> None:
    torch.manual_seed(0)
    model = MetaNeighborhoods(torch.nn.Identity(), num_features=3, num_classes=2, S=7).eval()
    part = Part(torch.randn(11, 3), torch.zeros(11, dtype=torch.int64))
    found = attention_statistics(model, part, torch.device("cpu"), batch_size=4)
    with torch.inference_mode():
        attention = model.attention(part.x).double()
    torch.testing.assert_close(found.weight, attention.mean(0))
    torch.testing.assert_close(found.effective, 1 / attention.square().sum(1))
    assert found.nearest.tolist() == torch.bincount(attention.argmax(1), minlength=7).tolist()


def test_share_in_use_counts_entries_above_a_tenth_of_an_even_share() -> None:
    weight = torch.tensor([0.5, 0.45, 0.026, 0.024])
    statistics = AttentionStatistics(weight, torch.zeros(4), torch.zeros(1))
    assert statistics.share_in_use == pytest.approx(0.75)
