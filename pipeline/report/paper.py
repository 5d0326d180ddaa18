"""The figures the paper prints, ``data/paper_tables.yaml``, for what was run here."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from mn.errors import MNError
from mn.yamlfile import read_yaml

PAPER = Path("data/paper_tables.yaml")

MeanStd = tuple[float, float]


class Paper(BaseModel):
    """The paper's tables: classification by backbone and data set, regression by data set."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    classification: dict[str, dict[str, dict[str, MeanStd]]]
    regression: dict[str, dict[str, MeanStd]]

    def figures(self, dataset: str, backbone: str | None) -> dict[str, MeanStd]:
        """By method; empty where the paper has none for the data set (with that backbone)."""
        if dataset in self.regression:
            return self.regression[dataset]
        return self.classification.get(backbone or "", {}).get(dataset, {})


def read_paper(path: Path) -> Paper:
    """The file, or one line on what is wrong with it."""
    try:
        return Paper.model_validate(read_yaml(path))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise MNError(f"{path}: {'.'.join(map(str, first['loc']))}: {first['msg']}") from None
