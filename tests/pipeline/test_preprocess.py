"""Stage 2, and the list of what is there."""

from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image
from typer.testing import CliRunner

from mn.data.hdf5 import describe
from mn.errors import MNError
from pipeline.cli import app
from pipeline.download import download
from pipeline.preprocess import preprocess
from tests.mn.data import make
from tests.pipeline.test_download import project  # noqa: F401 - a fixture


def test_without_data_it_says_what_to_run(project: Path) -> None:  # noqa: F811
    for name in ("digits", "mnist"):
        with pytest.raises(MNError, match=f"pipeline download {name}"):
            preprocess(project, name)


def test_a_raw_file_that_changed_is_not_used(project: Path, tmp_path: Path) -> None:  # noqa: F811
    folder = download(project, "cifar10", local=make.form(make.cifar("binary"), "tar", tmp_path))
    (folder / "set.tar").unlink()
    with pytest.raises(MNError, match="missing or changed"):
        preprocess(project, "cifar10")
    (folder / "SOURCE.json").write_text("{", encoding="utf-8")
    with pytest.raises(MNError, match="damaged"):
        preprocess(project, "cifar10")


def test_params_say_how_many_rows(project: Path, tmp_path: Path) -> None:  # noqa: F811
    download(project, "cifar10", local=make.form(make.cifar("binary"), "tar", tmp_path))
    params = project / "params.yaml"
    params.write_text(params.read_text(encoding="utf-8").replace("rows: auto", "rows: 200"), encoding="utf-8")
    assert describe(preprocess(project, "cifar10"))["shape"] == (200, 3, 32, 32)


def test_the_same_data_gives_the_same_bytes(project: Path, tmp_path: Path) -> None:  # noqa: F811
    download(project, "tiny_imagenet", local=make.form(make.tiny_imagenet(), "zip", tmp_path))
    first = preprocess(project, "tiny_imagenet").read_bytes()
    assert preprocess(project, "tiny_imagenet").read_bytes() == first


def test_the_list_of_data_sets(project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    monkeypatch.setattr("pipeline.cli._ROOT", project)
    download(project, "cifar10", local=make.form(make.cifar("binary"), "tar", tmp_path))
    preprocess(project, "cifar10")
    result = CliRunner().invoke(app, ["datasets"])
    assert result.exit_code == 0, result.output
    lines = {line.split()[0]: line for line in result.output.splitlines()}
    names = "mnist mnist_m svhn pacs cifar10 cifar100 cinic10 tiny_imagenet imagenet music toms cte super gom"
    assert set(names.split()) <= set(lines)
    assert {"spiral", "digits", "diabetes"} <= set(lines)
    assert "yes, your copy" in lines["cifar10"]
    assert "220 × 3×32×32" in lines["cifar10"]
    assert "170.1 MB" in lines["cifar10"]
    assert "login" in lines["imagenet"]
    assert " no " in lines["mnist"]


_MEASURE = """
import sys
from pathlib import Path
from mn.data.catalog import read_catalog
from mn.data.manifest import RawFile, write_manifest
from mn.data.prepare import prepare
raw = Path(sys.argv[1])
files = [RawFile(p.name, p.stat().st_size, '', '', '') for p in sorted(raw.glob('*.tar*'))]
write_manifest(raw, files)
prepare(read_catalog(Path(sys.argv[2]))['imagenet'], raw, raw / 'out.h5')
status = Path('/proc/self/status').read_text()  # getrusage counts what the parent held before exec, too
print(int(status.split('VmHWM:')[1].split()[0]) // 1024)
"""


def _peak(raw: Path) -> int:
    """Megabytes of memory that preprocessing ImageNet from ``raw`` takes at most."""
    command = [sys.executable, "-c", _MEASURE, str(raw), str(make.CATALOG)]
    root = make.CATALOG.parents[1]
    result = subprocess.run(command, capture_output=True, text=True, check=True, cwd=root)
    return int(result.stdout)


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the peak is read from Linux's /proc")
def test_imagenet_streams(tmp_path: Path) -> None:
    """Three times the images take no more memory: nothing is held but a block and the names."""
    encoded = io.BytesIO()
    Image.linear_gradient("L").resize((250, 188)).convert("RGB").save(encoded, "JPEG")
    wnids = [f"n{i:08}" for i in range(1, 11)]
    peaks = {}
    for each in (50, 150):
        raw = make.folder(make.imagenet(), tmp_path / str(each))
        train = {}
        for wnid in wnids:
            names = [f"{wnid}_{i}.JPEG" for i in range(each)]
            train[f"{wnid}.tar"] = make.tar(dict.fromkeys(names, encoded.getvalue()))
        (raw / "ILSVRC2012_img_train.tar").write_bytes(make.tar(train))
        peaks[each] = _peak(raw)
    assert peaks[150] < 600
    assert peaks[150] - peaks[50] < 100
