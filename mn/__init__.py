"""Meta-Neighborhoods: predictions adapted to each input by a learned dictionary of neighbours."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mn.nn import MetaNeighborhoods

__all__ = ["MetaNeighborhoods"]


def __getattr__(name: str) -> Any:
    # on first use: importing torch takes a second that `mn.data` or a `--help` should not wait for
    if name == "MetaNeighborhoods":
        from mn.nn import MetaNeighborhoods

        return MetaNeighborhoods
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
