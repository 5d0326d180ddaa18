"""The loader and the parts it feeds: the same batches however they are made, images mapped, not read."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch
from torch import Tensor

from mn.data.augment import Policy
from mn.data.folds import Split
from mn.data.loader import Batch, Loader
from mn.data.split import Part, load_split
from mn.data.write import write_dataset
from mn.errors import MNError
from tests.mn.data import make

IMAGES = torch.randint(
    0, 256, (203, 3, 32, 32), generator=torch.Generator().manual_seed(0), dtype=torch.uint8
)
# a label is its image's number, and no part's rows are one piece of the file
SPLIT = Split(train=np.arange(0, 203, 2), validation=np.arange(1, 203, 4), test=np.arange(3, 203, 4))
TRAIN = Part(IMAGES, torch.from_numpy(SPLIT.train), torch.from_numpy(SPLIT.train))


@pytest.fixture
def data_file(tmp_path: Path) -> Path:
    path = tmp_path / "set.h5"
    write_dataset(path, make.entry("cifar10"), IMAGES.numpy(), np.arange(203), {"main": SPLIT}, {})
    return path


def loader(part: Part = TRAIN, **options: Any) -> Loader:
    return Loader(part, **{"batch_size": 3, "seed": 1, "policy": Policy(flip=True), **options})


def assert_same(batches: list[Batch], others: list[Batch]) -> None:
    assert len(batches) == len(others)
    for batch, other in zip(batches, others, strict=True):
        assert torch.equal(batch.x, other.x)
        assert torch.equal(batch.y, other.y)
        assert torch.equal(batch.rows, other.rows)


# --- batches


@pytest.mark.parametrize("workers", [1, 3])
def test_workers_change_nothing(workers: int) -> None:
    assert_same(list(loader(workers=workers).epoch(0)), list(loader().epoch(0)))


def test_an_epoch_has_as_many_batches_as_it_says() -> None:
    batches = list(loader(batch_size=4).epoch(0))
    assert len(loader(batch_size=4)) == len(batches) == 26
    assert [len(batch.y) for batch in batches] == 25 * [4] + [2]


def test_an_epoch_has_every_row_once_in_an_order_of_its_own() -> None:
    feed = loader(policy=None)
    epochs = [torch.cat([batch.y for batch in feed.epoch(epoch)]).tolist() for epoch in (0, 1)]
    assert sorted(epochs[0]) == sorted(epochs[1]) == SPLIT.train.tolist()
    assert epochs[0] != epochs[1]


def test_seeds_have_orders_of_their_own() -> None:
    feeds = [loader(policy=None, seed=seed) for seed in (1, 2)]
    one, other = (torch.cat([batch.y for batch in feed.epoch(0)]).tolist() for feed in feeds)
    assert one != other


def test_images_keep_their_labels() -> None:
    for batch in loader(policy=None).epoch(0):
        assert torch.equal(batch.x, IMAGES[batch.y])


def test_every_epoch_augments_anew() -> None:
    feed = loader(Part(IMAGES[:1], torch.zeros(1)))
    seen = {batch.x.numpy().tobytes() for epoch in range(4) for batch in feed.epoch(epoch)}
    assert len(seen) == 4


@pytest.mark.parametrize("start", [0, 1, 15, 16, 20, 33, 34])
def test_an_epoch_is_gone_on_with_where_it_was_left(start: int) -> None:
    whole = list(loader().epoch(2))
    assert len(whole) == 34
    assert_same(list(loader(workers=2).epoch(2, start=start)), whole[start:])


def test_leaving_an_epoch_early_ends_its_workers() -> None:
    before = threading.active_count()
    batches = loader(workers=2).epoch(0)
    next(batches)
    assert threading.active_count() > before
    batches.close()  # type: ignore[attr-defined]
    assert threading.active_count() == before


def test_a_part_by_rows_feeds_as_the_rows_copied_out() -> None:
    copied = Part(IMAGES[TRAIN.rows], TRAIN.y)
    assert_same(list(loader(TRAIN).epoch(0)), list(loader(copied).epoch(0)))


def test_a_table_is_fed_as_it_is() -> None:
    x = torch.randn(20, 5, generator=torch.Generator().manual_seed(0))
    part = Part(x, x[:, :2], weights=x[:, 0].abs())
    batches = list(loader(part, policy=None, workers=1).epoch(0))
    for batch in batches:
        assert torch.equal(batch.x[:, :2], batch.y)
        assert torch.equal(batch.x, x[batch.rows])
        assert batch.weights is not None
        assert torch.equal(batch.weights, batch.x[:, 0].abs())
    inputs = torch.cat([batch.x for batch in batches])
    assert torch.equal(inputs[inputs[:, 0].argsort()], x[x[:, 0].argsort()])


# --- parts


@pytest.mark.parametrize("index", [slice(2, 5), torch.tensor([4, 0, 4])], ids=["slice", "numbers"])
def test_inputs_by_rows_are_those_of_the_rows_copied_out(index: Tensor | slice) -> None:
    assert torch.equal(TRAIN.inputs(index), IMAGES[TRAIN.rows].clone()[index])


@pytest.mark.parametrize("name", ["train", "validation", "test"])
def test_mapped_images_are_the_rows_of_the_file(data_file: Path, name: str) -> None:
    part: Part = getattr(load_split(data_file, "main"), name)
    rows = getattr(SPLIT, name)
    assert torch.equal(part.inputs(slice(None)), IMAGES[rows])
    assert part.y.tolist() == rows.tolist()


def test_the_parts_of_an_image_set_share_one_map(data_file: Path) -> None:
    data = load_split(data_file, "main")
    assert len({part.x.data_ptr() for part in (data.train, data.validation, data.test)}) == 1
    assert data.input_shape == (3, 32, 32)


def test_images_larger_than_the_memory_are_no_obstacle(tmp_path: Path) -> None:
    """A file of a terabyte, nearly all of it a hole: it can be mapped, not read."""
    path = tmp_path / "large.h5"
    shape = (2**40 // 3072, 3, 32, 32)
    with h5py.File(path, "w") as file:
        layout = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        layout.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
        layout.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
        h5py.h5d.create(file.id, b"x", h5py.h5t.NATIVE_UINT8, h5py.h5s.create_simple(shape), layout)
        file["x"][1] = IMAGES[7].numpy()
        file["y"] = np.arange(3)
        for row, part in enumerate(("train", "validation", "test")):
            file[f"splits/main/{part}"] = [row]
        file.attrs.update(kind="images", task="classification", classes=json.dumps(["a"] * 3), flip=True)
    data = load_split(path, "main")
    path.unlink()  # the map stays; a terabyte would frighten whoever looks at the folder
    assert data.train.x.shape == shape
    assert torch.equal(data.validation.inputs(slice(None)), IMAGES[7:8])


def test_images_in_chunks_are_refused(data_file: Path) -> None:
    with h5py.File(data_file, "a") as file:
        del file["x"]
        file.create_dataset("x", data=IMAGES.numpy(), chunks=True)
    with pytest.raises(MNError, match=r"set\.h5: its images do not lie in one piece; preprocess it again"):
        load_split(data_file, "main")


def test_a_split_that_is_not_there_is_named(data_file: Path) -> None:
    with pytest.raises(MNError, match="no split other; it has main"):
        load_split(data_file, "other")
