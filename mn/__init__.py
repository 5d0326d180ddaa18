"""Meta-Neighborhoods: predictions adapted to each input by a learned dictionary of neighbours."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mn.engine.modelfile import load_model as load
    from mn.estimators import MNClassifier, MNRegressor
    from mn.nn import MetaNeighborhoods

__all__ = ["MNClassifier", "MNRegressor", "MetaNeighborhoods", "load"]

_HOME = {
    "MNClassifier": ("mn.estimators", "MNClassifier"),
    "MNRegressor": ("mn.estimators", "MNRegressor"),
    "MetaNeighborhoods": ("mn.nn", "MetaNeighborhoods"),
    "load": ("mn.engine.modelfile", "load_model"),
}


def __getattr__(name: str) -> Any:
    # On first use: importing torch, or scikit-learn, takes a second that `mn.data` or a `--help` should
    # not wait for.
    if name in _HOME:
        module, attribute = _HOME[name]
        return getattr(import_module(module), attribute)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
