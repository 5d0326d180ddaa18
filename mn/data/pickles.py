"""Reading a pickle of arrays without letting it run anything.

A pickle is a program: ``pickle.load`` calls whatever it names. CIFAR's python batches need dictionaries,
lists, strings, numbers and NumPy arrays of plain numbers, so nothing else can be named here.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np

from mn.errors import MNError

_MODULES = (
    "numpy",
    "numpy.core.multiarray",
    "numpy._core.multiarray",
    "numpy.core.numeric",
    "numpy._core.numeric",
)


def read_arrays(data: bytes, where: str) -> Any:
    """The object in a pickle, made of containers, strings, numbers and numeric arrays only."""
    try:
        # latin1 is how NumPy's Python 2 pickles have to be read: their array bytes are strings there.
        return _ArraysOnly(io.BytesIO(data), encoding="latin1").load()
    except pickle.UnpicklingError as error:
        raise MNError(f"{where}: not a pickle of arrays ({error}); refused") from None
    except Exception as error:  # noqa: BLE001 - a broken pickle can fail in any of the calls it may make
        raise MNError(f"{where}: not a readable pickle ({type(error).__name__}); refused") from None


class _ArraysOnly(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if module in _MODULES and name in _ALLOWED:
            return _ALLOWED[name]
        if (module, name) == ("_codecs", "encode"):  # how Python 3 writes bytes into an old protocol
            return _encode
        raise pickle.UnpicklingError(f"it names {module}.{name}")

    def persistent_load(self, pid: Any) -> Any:
        raise pickle.UnpicklingError(f"it refers to an outside object {pid!r}")


def _dtype(spec: Any, *rest: Any) -> np.dtype[Any]:
    dtype: np.dtype[Any] = np.dtype(spec)
    if dtype.kind not in "biufSU":
        raise pickle.UnpicklingError(f"an array of type {dtype} is not plain numbers")
    del rest  # align and copy: of no meaning to a type of plain numbers
    return dtype


def _reconstruct(_kind: Any, _shape: Any, _code: Any) -> np.ndarray:
    """What NumPy calls to make an array that the pickle's next step fills."""
    return np.ndarray((0,), dtype=np.uint8)


def _scalar(dtype: np.dtype[Any], data: bytes | str) -> Any:
    return np.frombuffer(_as_bytes(data), dtype=dtype)[0]


def _frombuffer(data: bytes, dtype: np.dtype[Any], shape: tuple[int, ...], order: str) -> np.ndarray:
    """What protocol 5 calls."""
    return np.frombuffer(data, dtype=dtype).reshape(shape, order="F" if order == "F" else "C")


def _encode(text: str, encoding: str) -> bytes:
    if encoding != "latin1":
        raise pickle.UnpicklingError(f"bytes in {encoding}")
    return text.encode("latin1")


def _as_bytes(data: bytes | str) -> bytes:
    return data.encode("latin1") if isinstance(data, str) else data


class _NdarrayName:
    """Stands for ``numpy.ndarray`` where a pickle names it as an argument; calling it is refused."""

    def __new__(cls, *_: Any) -> _NdarrayName:
        raise pickle.UnpicklingError("it calls numpy.ndarray")


_ALLOWED: dict[str, Callable[..., Any]] = {
    "ndarray": _NdarrayName,
    "dtype": _dtype,
    "_reconstruct": _reconstruct,
    "scalar": _scalar,
    "_frombuffer": _frombuffer,
}
