"""`Predictions`: what a classifier said and what was true. The boundary between models and everything after them."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from calibrant.files import written_aside


@dataclass(frozen=True, eq=False)
class Predictions:
    """Logits and labels of a set of samples, validated once.

    Build it with `from_logits` or read it with `open`; nothing guesses what an array of numbers means.

    Attributes:
        logits: ``[N, C]`` floating point.
        labels: ``[N]`` int64, from 0 to C - 1.
        ids: ``[N]`` int64 sample ids, or None.

    Example:
        >>> import numpy as np
        >>> from calibrant import Predictions
        >>> p = Predictions.from_logits(np.array([[2.0, 0.0], [0.0, 1.0]]), np.array([0, 1]))
        >>> len(p), p.num_classes
        (2, 2)
    """

    logits: npt.NDArray[np.floating[Any]]
    labels: npt.NDArray[np.int64]
    ids: npt.NDArray[np.int64] | None = None

    @classmethod
    def from_logits(
        cls, logits: npt.ArrayLike, labels: npt.ArrayLike, *, ids: npt.ArrayLike | None = None
    ) -> Predictions:
        """Check logits ``[N, C]``, labels ``[N]`` and optional ids ``[N]``; the arrays are not copied."""
        z, y = np.asarray(logits), np.asarray(labels)
        if z.dtype.kind == "f" and z.dtype.itemsize <= 8:
            z = z.astype(z.dtype.newbyteorder("="), copy=False)
        if z.dtype.kind != "f" or z.dtype.itemsize > 8 or z.ndim != 2 or z.shape[0] == 0 or z.shape[1] < 2:
            raise ValueError(
                f"logits must be floating point [N, C] with N >= 1 and C >= 2, got {z.dtype} {list(z.shape)}"
            )
        if y.shape != z.shape[:1] or y.dtype.kind not in "iu":
            raise ValueError(f"labels must be whole numbers [{len(z)}], got {y.dtype} {list(y.shape)}")
        outside = np.flatnonzero((y < 0) | (y >= z.shape[1]))
        if len(outside):
            raise ValueError(f"labels must lie in 0..{z.shape[1] - 1}, got {y[outside[0]]} in row {outside[0]}")
        broken = np.flatnonzero(~np.isfinite(z).all(1))
        if len(broken):
            raise ValueError(f"logits must be finite, got {z[broken[0]].tolist()} in row {broken[0]}")
        rows = None if ids is None else np.asarray(ids)
        if rows is not None and (rows.shape != y.shape or rows.dtype.kind not in "iu"):
            raise ValueError(f"ids must be whole numbers [{len(z)}], got {rows.dtype} {list(rows.shape)}")
        return cls(z, y.astype(np.int64), None if rows is None else rows.astype(np.int64))

    @classmethod
    def open(cls, path: str | Path) -> Predictions:
        """Read an ``.npz`` file with arrays ``logits``, ``labels`` and optionally ``ids``; nothing is unpickled."""
        try:
            with Path(path).open("rb") as file:
                if file.read(2) != b"PK":
                    raise ValueError("not an .npz archive")
                file.seek(0)
                return cls._from_archive(np.load(file, allow_pickle=False))
        except FileNotFoundError:
            raise ValueError(f"{path}: no such file") from None
        except (ValueError, OSError, EOFError, zipfile.BadZipFile) as error:
            raise ValueError(f"{path}: cannot read predictions: {error}") from error

    @classmethod
    def _from_archive(cls, archive: Any) -> Predictions:
        missing = [name for name in ("logits", "labels") if name not in archive]
        if missing:
            held = ", ".join(archive.files) or "nothing"
            raise ValueError(f"{' and '.join(missing)} missing, expected arrays logits and labels; it holds {held}")
        return cls.from_logits(archive["logits"], archive["labels"], ids=archive.get("ids"))

    def save(self, path: str | Path) -> None:
        """Write an ``.npz`` file aside and rename it, so that a reader never sees half of it."""
        if Path(path).suffix != ".npz":
            raise ValueError(f"{path}: predictions are written as .npz, got {Path(path).suffix!r}")
        with written_aside(path) as aside, aside.open("wb") as file:
            if self.ids is None:
                np.savez(file, logits=self.logits, labels=self.labels)
            else:
                np.savez(file, logits=self.logits, labels=self.labels, ids=self.ids)

    def batches(self, size: int) -> Iterator[Predictions]:
        """Consecutive slices of at most ``size`` samples."""
        if size < 1:
            raise ValueError(f"batch size must be at least 1, got {size}")
        for start in range(0, len(self), size):
            rows = slice(start, start + size)
            yield Predictions(self.logits[rows], self.labels[rows], None if self.ids is None else self.ids[rows])

    @property
    def num_classes(self) -> int:
        """The number of classes."""
        return int(self.logits.shape[1])

    def __len__(self) -> int:
        return len(self.labels)
