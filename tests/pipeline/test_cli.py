"""The command line: one line for an error, nothing written, and what `params` and `runs` show."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from mn.errors import MNError
from pipeline.cli import main
from pipeline.train import train
from tests.conftest import set_params

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Call ``pipeline`` with arguments in the tiny project: exit code, standard output and error."""
    monkeypatch.chdir(project)

    def call(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["pipeline", *arguments])
        capsys.readouterr()  # what was printed before the call is not its answer
        with pytest.raises(SystemExit) as exited:
            main()
        printed = capsys.readouterr()
        code = exited.value.code
        if isinstance(code, str):  # what Python prints for sys.exit("…"), with exit code 1
            return 1, printed.out, printed.err + code
        return int(code or 0), printed.out, printed.err

    return call


STAGES = ("download", "preprocess", "train", "evaluate", "export")


@pytest.mark.parametrize("stage", STAGES)
def test_wrong_parameter_is_one_line_and_writes_nothing(run: Run, project: Path, stage: str) -> None:
    set_params(project, model={"S": -1})
    before = sorted(project.rglob("*"))
    code, out, err = run(stage, "digits")
    assert (code, out) == (1, "")
    assert err.startswith("error: params.yaml: model.S = -1 is not allowed")
    assert "\n" not in err
    assert sorted(project.rglob("*")) == before


@pytest.mark.parametrize("stage", STAGES)
def test_unknown_data_set_is_told_with_those_known(run: Run, stage: str) -> None:
    code, _, err = run(stage, "dogits")
    assert code == 1
    assert err.startswith("error: data set dogits: not in data/catalog.yaml; did you mean digits? allowed: ")
    assert "spiral, digits, diabetes" in err


@pytest.mark.parametrize(
    ("stage", "needed"),
    [("preprocess", "download"), ("train", "preprocess"), ("evaluate", "train"), ("export", "train")],
)
def test_stage_without_its_input_names_the_command_to_run(run: Run, stage: str, needed: str) -> None:
    code, _, err = run(stage, "spiral")
    assert code == 1
    assert err.endswith(f"run: pipeline {needed} spiral")
    assert "\n" not in err


def test_debug_shows_the_error_itself(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(project)
    monkeypatch.setattr(sys, "argv", ["pipeline", "--debug", "train", "spiral"])
    with pytest.raises(MNError, match="no such file"):
        main()


def test_params_prints_every_setting(run: Run) -> None:
    code, out, _ = run("params", "digits")
    assert code == 0
    shown = YAML(typ="safe").load(out)
    assert shown.pop("execution")["device"] == "auto", "where it is computed may be left open"
    assert "auto" not in str(shown)
    for expected in ("S: 8", "S_l: 2", "epochs: 3", "- mn_ifilm-seed0"):
        assert expected in out


def test_runs_of_an_empty_store(run: Run) -> None:
    assert run("runs")[:2] == (0, "no runs in .mn\n")


def test_runs_are_listed_with_parameters_and_pruned_when_nothing_refers_to_them(
    run: Run, prepared: Callable[[str], Path]
) -> None:
    root = prepared("spiral")
    set_params(root, datasets=["spiral"])
    train(root, "spiral")
    set_params(root, model={"S": 9})
    train(root, "spiral")  # results/ now names S=9; nothing names S=8 any more

    _, out, _ = run("runs")
    mn = [line for line in out.splitlines() if "mn-seed0" in line]
    assert len(mn) == 2
    assert [("S=8" in line, "unused" in line) for line in mn] == [(True, True), (False, False)]
    assert "vanilla-seed0" in out

    _, out, _ = run("runs", "--prune")
    assert out.startswith("removed 1 runs (")
    assert "kept 2" in out
    _, out, _ = run("runs")
    assert "S=8" not in out
    assert "S=9" in out


def test_runs_that_params_name_stay_although_results_are_gone(
    run: Run, prepared: Callable[[str], Path]
) -> None:
    root = prepared("spiral")
    set_params(root, datasets=["spiral"])
    train(root, "spiral")
    shutil.rmtree(root / "results")
    _, out, _ = run("runs", "--prune")
    assert out == "removed 0 runs (0 B), kept 2\n"
