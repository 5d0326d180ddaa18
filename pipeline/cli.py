"""The command line: ``pipeline <stage> <data set>``, and what helps to see where things stand.

Each command imports its stage when it is called: ``--help`` need not wait for PyTorch.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from mn.engine.interrupt import Interrupted
from mn.errors import MNError

app = typer.Typer(
    help="Reproduce Meta-Neighborhoods: six stages, from raw data to a report.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

Dataset = Annotated[str, typer.Argument(help="A data set of data/catalog.yaml, such as digits.")]
_ROOT = Path()  # every command works on the project it is called in


@app.callback()
def _options(
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    _Debug.on = debug


class _Debug:
    on = False


@app.command()
def download(
    dataset: Dataset,
    local: Annotated[
        Path | None,
        typer.Option("--from", help="Your copy of its files: an archive, a file, or a folder of them."),
    ] = None,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Forget what is kept of it and download it again.")
    ] = False,
    target: Annotated[
        list[str] | None,
        typer.Option(help="Your own table: the column to predict, by name or number. Repeat it for more."),
    ] = None,
    drop: Annotated[list[str] | None, typer.Option(help="Your own table: a column to leave out.")] = None,
    task: Annotated[
        Literal["auto", "classification", "regression"],
        typer.Option(help="Your own table: auto is classification if the target holds words."),
    ] = "auto",
    header: Annotated[
        bool | None, typer.Option("--header/--no-header", help="Your own table; found out by itself.")
    ] = None,
    missing: Annotated[
        Literal["refuse", "drop"], typer.Option(help="Your own table: rows with missing values.")
    ] = "refuse",
    categorical: Annotated[
        Literal["one-hot", "refuse"], typer.Option(help="Your own table: input columns of words.")
    ] = "one-hot",
) -> None:
    """Fetch the raw data, verified, into data/raw/<data set>/; or add your own with --from."""
    from pipeline.download import download as stage
    from pipeline.own import TableOptions

    options = TableOptions(target or [], drop or [], task, header, missing, categorical)
    _done(stage(_ROOT, dataset, local=local, fresh=fresh, options=options))


@app.command()
def preprocess(dataset: Dataset) -> None:
    """Bring the raw data into data/processed/<data set>.h5: splits, folds, statistics."""
    from pipeline.preprocess import preprocess as stage

    _done(stage(_ROOT, dataset))


@app.command()
def train(dataset: Dataset) -> None:
    """Train every run (method x seed or fold) that is not in the run store yet."""
    from mn.engine.distributed import current_ranks
    from pipeline.train import train as stage

    written = stage(_ROOT, dataset)
    if current_ranks().main:  # under torchrun every process gets here
        _done(written)


@app.command()
def evaluate(dataset: Dataset) -> None:
    """Measure the trained runs on the test part: results/<data set>/metrics.json."""
    from pipeline.evaluate import evaluate as stage

    _done(stage(_ROOT, dataset))


@app.command()
def export(dataset: Dataset) -> None:
    """Write the learned dictionaries, and the models for use elsewhere."""
    from pipeline.export import export as stage

    _done(stage(_ROOT, dataset))


@app.command()
def report() -> None:
    """Put all results together in report/index.html, one file that opens anywhere."""
    from pipeline.report import report as stage

    _done(stage(_ROOT))


@app.command()
def datasets() -> None:
    """List the data sets: task, classes, size, licence, and what is downloaded and preprocessed here."""
    from pipeline.datasets import show_datasets

    show_datasets(_ROOT)


@app.command()
def params(dataset: Dataset) -> None:
    """Print the resolved settings of every run: nothing left to auto."""
    from pipeline.show import show_params

    show_params(_ROOT, dataset)


@app.command()
def runs(
    prune: Annotated[
        bool,
        typer.Option("--prune", help="Remove the runs that neither params.yaml nor results/ names."),
    ] = False,
) -> None:
    """List the run store: parameters, age and size of every run."""
    from pipeline.show import prune_runs, show_runs

    if prune:
        prune_runs(_ROOT)
    else:
        show_runs(_ROOT)


def _done(path: Path) -> None:
    typer.echo(f"wrote {path}")


def main() -> None:
    """Run the command line; an error that the user can mend is one line and exit code 1."""
    try:
        app()
    except MNError as error:
        if _Debug.on:
            raise
        sys.exit(f"error: {error}")
    except (KeyboardInterrupt, Interrupted):
        if _Debug.on:
            raise
        sys.stderr.write("stopped; the same command goes on from here\n")
        sys.exit(130)
