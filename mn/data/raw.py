"""Raw data of the embedded sets: made or copied without a network, verified, kept as one ``.npz``."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np

from mn.data.catalog import Entry, Generated
from mn.errors import MNError
from mn.files import replacing

Arrays = dict[str, np.ndarray]


def fetch_raw(entry: Entry, folder: Path) -> Path:
    """Write ``folder/<name>.npz``, after its content was found to be what the catalogue promises."""
    arrays = spiral(entry.generate) if entry.generate else _SCIKIT_LEARN[entry.name]()
    found = checksum(arrays)
    if found != entry.checksum:
        raise MNError(
            f"data set {entry.name}: SHA-256 of its arrays is {found}, the catalogue has "
            f"{entry.checksum}; install the versions of requirements.lock"
        )
    path = folder / f"{entry.name}.npz"
    with replacing(path) as aside, aside.open("wb") as file:
        np.savez(file, allow_pickle=False, **arrays)
    return path


def checksum(arrays: Arrays) -> str:
    """SHA-256 over names, types, shapes and bytes: independent of how the file packs them."""
    digest = hashlib.sha256()
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        digest.update(f"{name} {array.dtype.str} {array.shape} ".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()


def spiral(generate: Generated) -> Arrays:
    r"""Two concentric spirals in the plane (method of the paper's toy example).

    With :math:`U` uniform on [0, 1), drawn anew at each place, and :math:`n=\sqrt{U}\cdot 780°` in radians,
    class 0 lies at :math:`(-n\cos n + U,\ n\sin n + U)` and class 1 at its negation.

    Returns:
        ``x`` (N, 2) float32, not yet standardised; ``y`` (N,); ``part`` (N,) with 0 train,
        1 validation, 2 test.
    """
    rng = np.random.default_rng(generate.seed)
    xs, ys, parts = [], [], []
    for part, count in enumerate((generate.train, generate.validation, generate.test)):
        n = np.sqrt(rng.random(count)) * np.deg2rad(780)
        arm = np.stack([-n * np.cos(n), n * np.sin(n)], axis=1) + rng.random((count, 2))
        xs += [arm, -arm]
        ys += [np.zeros(count), np.ones(count)]
        parts.append(np.full(2 * count, part))
    return {
        # Rounded, because cos and sin differ in the last bit between platforms' libraries.
        "x": np.concatenate(xs).round(5).astype(np.float32),
        "y": np.concatenate(ys).astype(np.int64),
        "part": np.concatenate(parts).astype(np.int64),
    }


def _digits() -> Arrays:
    from sklearn.datasets import load_digits

    data = load_digits()
    return {"x": data.images.astype(np.uint8), "y": data.target.astype(np.int64)}


def _diabetes() -> Arrays:
    from sklearn.datasets import load_diabetes

    data = load_diabetes(scaled=False)
    # Written with at most four decimals; releases of scikit-learn read some of them one bit apart.
    return {"x": data.data.astype(np.float64).round(4), "y": data.target.astype(np.float64)}


_SCIKIT_LEARN = {"digits": _digits, "diabetes": _diabetes}
