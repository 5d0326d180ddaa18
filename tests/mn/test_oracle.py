"""The numbers of the authors' own code, where their files lie beside the repository."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from mn import functional
from tests.mn.parity import assert_same

ORACLE = Path(__file__).resolve().parents[3] / "shared" / "oracle"
FILES = sorted(ORACLE.glob("mn_*.npz"))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])
@pytest.mark.parametrize("path", FILES or [None], ids=lambda path: path.stem if path else "none")
def test_the_authors_code_gives_the_same(path: Path | None, dtype: torch.dtype) -> None:
    if path is None:
        pytest.skip(f"no reference numbers in {ORACLE.name}/ beside the repository")
    data = np.load(path)

    def leaf(name: str) -> torch.Tensor:
        return torch.tensor(data[name]).to(dtype).requires_grad_()

    names = ["features", "k", "v_raw", "w1", "lr", "alpha"]
    names.append("b1" if data["meta_dot"] else "tau")
    given = {name: leaf(name) for name in names}
    logits = functional.adapted_logits(
        given["features"],
        given["k"],
        (float(data["gamma"]) * given["v_raw"]).softmax(1),
        given["w1"].mT,
        alpha=given["lr"],
        scale=given.get("tau"),
        bias=given.get("b1"),
        temperature=1 / given["alpha"],
        steps=int(data["meta_steps"]),
    )
    attention = functional.attend(given["features"], given["k"], temperature=1 / given["alpha"])
    loss = F.cross_entropy(logits, torch.tensor(data["labels"]))
    found = [attention, logits, loss, *torch.autograd.grad(loss, list(given.values()))]

    suffix, tolerance = ("_f64", 1e-9) if dtype == torch.float64 else ("", 1e-5)
    expected = [
        torch.tensor(data[name + suffix])
        for name in ["sim", "logits", "loss", *(f"grad_{name}" for name in names)]
    ]
    assert_same(found, expected, tolerance)


@pytest.mark.parametrize("path", FILES or [None], ids=lambda path: path.stem if path else "none")
def test_every_step_is_that_of_the_authors_code(path: Path | None) -> None:
    if path is None:
        pytest.skip(f"no reference numbers in {ORACLE.name}/ beside the repository")
    data = {name: torch.tensor(value) for name, value in np.load(path).items()}
    for step, expected in enumerate(data["logits_per_step_f64"], start=1):
        logits = functional.adapted_logits(
            data["features"].double(),
            data["k"].double(),
            (data["gamma"].double() * data["v_raw"].double()).softmax(1),
            data["w1"].double().mT,
            alpha=data["lr"].double(),
            scale=None if data["meta_dot"] else data["tau"].double(),
            bias=data["b1"].double() if data["meta_dot"] else None,
            temperature=1 / data["alpha"].double(),
            steps=step,
        )
        assert_same([logits], [expected], 1e-9)
