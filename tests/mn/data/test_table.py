"""Tables: UCI's quirks, and whatever a user's spreadsheet holds."""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest

from mn.data.archive import Collection
from mn.data.catalog import Columns, Entry, SplitRule
from mn.data.hdf5 import describe
from mn.data.readers import read
from mn.data.readers.content import Content
from mn.errors import MNError
from tests.mn.data import make
from tests.mn.data.test_readers import through


def numbers(rows: int, columns: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(rows, columns)).round(4)


def text(values: np.ndarray, header: str = "") -> bytes:
    lines = [",".join(map(str, row)) for row in values.tolist()]
    return "\n".join(([header] if header else []) + lines).encode() + b"\n"


def own(task: str = "regression", **rule: object) -> Entry:
    return Entry(
        name="mine",
        title="",
        task=task,
        kind="table",
        source="files",
        citation="",
        licence="",
        format="table",
        split=SplitRule(seed=0, folds=5, validation=0.2),
        columns=Columns(**{"targets": ["y"], "header": True, **rule}),
    )


def parse(data: bytes | str, tmp_path: Path, name: str = "t.csv", **rule: object) -> Content:
    path = tmp_path / name
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    task = str(rule.pop("task", "regression"))
    return read(own(task, **rule), Collection([path]))


def test_music_target_is_first_and_the_published_test_part_is_last(tmp_path: Path) -> None:
    entry = make.entry("music")
    assert entry.heldout is not None
    entry = entry.model_copy(update={"heldout": entry.heldout.model_copy(update={"train_first": 80})})
    values = numbers(100, 91)
    source = make.form({"YearPredictionMSD.txt": text(values)}, "zip", tmp_path)
    with h5py.File(through(entry, source, tmp_path)) as file:
        assert np.array_equal(file["y"][:, 0], values[:, 0])
        assert np.array_equal(file["x"][:], values[:, 1:])
        assert file["splits/heldout/test"][:].tolist() == list(range(80, 100))
        assert len(file["splits/heldout/validation"]) == 8


def test_cte_drops_the_patient_and_holds_patients_out(tmp_path: Path) -> None:
    values = np.hstack([np.arange(120)[:, None] // 4, numbers(120, 6)])
    header = "patientId,value0,value1,value2,value3,value4,reference"
    source = make.form({"slice_localization_data.csv": text(values, header)}, "zip", tmp_path)
    with h5py.File(through(make.entry("cte"), source, tmp_path)) as file:
        assert file["x"].shape == (120, 5)
        assert sorted(file["splits"]) == [f"{word}{i}" for word in ("fold", "heldout") for i in range(5)]
        patient = values[:, 0]
        tested = []
        for i in range(5):
            parts = [
                set(patient[file[f"splits/heldout{i}/{part}"][:]]) for part in ("train", "validation", "test")
            ]
            assert not parts[0] & parts[1]
            assert not parts[0] & parts[2]
            assert not parts[1] & parts[2]
            tested += file[f"splits/heldout{i}/test"][:].tolist()
        assert sorted(tested) == list(range(120))


def test_toms_target_is_last_and_its_archive_lies_in_an_archive(tmp_path: Path) -> None:
    values = numbers(50, 97)
    inner = make.tar(
        {
            "regression/TomsHardware/TomsHardware.data": text(values),
            "regression/Twitter/Twitter.data": b"1,2\n",
        },
        "gz",
    )
    source = make.form({"regression.tar.gz": inner}, "zip", tmp_path)
    with h5py.File(through(make.entry("toms"), source, tmp_path)) as file:
        assert np.array_equal(file["y"][:, 0], values[:, -1])
        assert file["x"].shape == (50, 96)


def test_gom_has_two_targets_and_super_a_second_table(tmp_path: Path) -> None:
    values = numbers(60, 118)
    files = {
        "default_features_1059_tracks.txt": text(values[:, :70]),
        "default_plus_chromatic_features_1059_tracks.txt": text(values),
    }
    found = describe(through(make.entry("gom"), make.form(files, "zip", tmp_path), tmp_path))
    assert found["shape"] == (60, 116)
    assert found["targets"] == ["latitude", "longitude"]
    files = {"train.csv": text(numbers(60, 3), "number,mass,critical_temp"), "unique_m.csv": b"H,He\n1,2\n"}
    (tmp_path / "super").mkdir()
    assert describe(through(make.entry("super"), make.form(files, "zip", tmp_path / "super"), tmp_path))[
        "shape"
    ] == (60, 2)


def test_statistics_are_those_of_the_fold_and_constant_columns_become_zero(tmp_path: Path) -> None:
    from mn.data.split import load_split

    values = numbers(60, 118)
    values[:, 3] = 7.25
    source = make.folder({"default_plus_chromatic_features_1059_tracks.txt": text(values)}, tmp_path / "gom")
    path = through(make.entry("gom"), source, tmp_path)
    with h5py.File(path) as file:
        rows = file["splits/fold2/train"][:]
        assert np.allclose(file["splits/fold2/x_mean"][:], values[rows, :-2].mean(0))
        assert any("constant" in note for note in json.loads(file.attrs["provenance"])["notes"])
    train = load_split(path, "fold2").train.x
    assert train[:, 3].abs().max() == 0
    assert abs(float(train[:, 0].mean())) < 1e-6


def test_quirks_of_text(tmp_path: Path) -> None:
    plain = parse("a,y\n1,2\n3,4\n", tmp_path)
    for data, rule in [
        (b"\xef\xbb\xbfa,y\r\n1,2\r\n3,4\r\n", {}),
        (b'"a","y"\n"1","2"\n\n"3","4"\n\n', {}),
        (b"a;y\n1;2\n3;4", {"delimiter": ";"}),
        (b"a\ty\n1\t2\n3\t4\n", {"delimiter": "\t"}),
        (b" a , y \n 1 , 2 \n 3 , 4 \n", {}),
        (b"1,2\n3,4\n", {"header": False, "targets": [-1]}),
        (gzip.compress(b"a,y\n1.0,2e0\n3,4\n"), {"name": "t.csv.gz"}),
    ]:
        found = parse(data, tmp_path, **rule)
        assert np.array_equal(found.x, plain.x)
        assert np.array_equal(found.y, plain.y)


def test_missing_values_are_refused_with_their_count_or_dropped(tmp_path: Path) -> None:
    data = "a,id,y\n1,,2\n?,k,3\n4,k,NA\n5,k,inf\n6,k,7\n8,k,9\n"
    with pytest.raises(MNError, match=r"3 of 6 rows have missing values, the first is row 2.*--missing drop"):
        parse(data, tmp_path, drop=["id"])
    found = parse(data, tmp_path, drop=["id"], missing="drop")
    assert found.x.tolist() == [[1], [6], [8]]
    assert found.notes == ["3 of 6 rows with missing values dropped"]
    with pytest.raises(MNError, match="every row"):
        parse("a,y\n,1\n,2\n", tmp_path, missing="drop")


def test_words_are_encoded_or_refused_by_name(tmp_path: Path) -> None:
    data = "size,city,y\n1,Rome,2\n3,Oslo,4\n5,Rome,6\n"
    with pytest.raises(
        MNError, match=r"column city holds 2 different words.*--categorical one-hot.*--drop city"
    ):
        parse(data, tmp_path)
    found = parse(data, tmp_path, categorical="one-hot")
    assert found.columns == ["size", "city=Oslo", "city=Rome"]
    assert found.x.tolist() == [[1, 0, 1], [3, 1, 0], [5, 0, 1]]
    many = "id,y\n" + "".join(f"k{i},{i}\n" for i in range(101))
    with pytest.raises(MNError, match=r"column id holds 101 different words.*leave it out"):
        parse(many, tmp_path, categorical="one-hot")


def test_a_column_may_turn_to_words_late(tmp_path: Path) -> None:
    data = "a,y\n" + "1,2\n" * 5000 + "x,2\n"
    found = parse(data, tmp_path, categorical="one-hot")
    assert found.columns == ["a=1", "a=x"]
    assert found.x.sum(0).tolist() == [5000, 1]


def test_classes_are_the_targets_values(tmp_path: Path) -> None:
    found = parse("a,y\n1,no\n2,yes\n3,no\n", tmp_path, task="classification")
    assert (found.classes, found.y.tolist()) == (["no", "yes"], [0, 1, 0])
    found = parse("a,y\n1,10\n2,9\n3,10\n", tmp_path, task="classification")
    assert (found.classes, found.y.tolist()) == (["9", "10"], [1, 0, 1])


@pytest.mark.parametrize(
    ("data", "rule", "message"),
    [
        ("a,b\n1,2\n", {}, "no column 'y'; it has a, b"),
        ("a,b\n1,2\n", {"targets": [5]}, "no column number 5"),
        ("y,y\n1,2\n", {}, "2 columns are called 'y'"),
        ("y\n1\n", {}, "no column is left"),
        ("a,y\n1,2\n3\n", {}, "line 3: 1 cells"),
        ("a,y\n1,two\n", {}, "target y is not a number: 'two'"),
        ("a,y\n", {}, "no rows"),
        ("\n\n", {}, "empty"),
        (b"a,y\n\xff\xfe,1\n", {}, "UTF-8"),
    ],
)
def test_broken_tables(data: str | bytes, rule: dict[str, object], message: str, tmp_path: Path) -> None:
    with pytest.raises(MNError, match=message):
        parse(data, tmp_path, **rule)


def test_two_tables_are_one_too_many(tmp_path: Path) -> None:
    source = make.form({"a.csv": b"a,y\n1,2\n", "b.csv": b"a,y\n1,2\n"}, "zip", tmp_path)
    with pytest.raises(MNError, match="2 tables"):
        read(own(), Collection([source]))


def test_parquet_needs_its_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MNError, match=r"pip install 'meta-neighborhoods\[parquet\]'"):
        parse(b"PAR1", tmp_path, name="t.parquet")


def test_parquet(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow", reason="pyarrow, the extra `parquet`, is not installed")
    from pyarrow import parquet

    path = tmp_path / "t.parquet"
    parquet.write_table(pyarrow.table({"a": [1.5, None], "city": ["x", "y"], "y": [2, 3]}), path)
    found = read(own(missing="drop", categorical="one-hot"), Collection([path]))
    assert found.x.tolist() == [[1.5, 1.0]]
    assert found.y.tolist() == [[2.0]]
