"""Which files a path means, and one sentence for whatever is wrong with a file."""

from __future__ import annotations

import contextlib
import csv
import glob
import os
import re
import zipfile
import zlib
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

from calibrant.predictions import remote
from calibrant.predictions.about import DATA

SUFFIXES = (".csv", ".npy", ".npz", ".parquet", ".safetensors")
#: What is read, each with the suffix of its format.
READ = {suffix: suffix for suffix in SUFFIXES} | dict.fromkeys((".tsv", ".csv.gz", ".tsv.gz"), ".csv")
PICKLES = (".pt", ".pth", ".pkl", ".pickle", ".joblib", ".ckpt")

#: What reading a damaged or hostile file raises, besides ValueError: NumPy, zipfile, zlib, Arrow, JSON.
BROKEN = (
    ValueError,
    OSError,
    EOFError,
    LookupError,
    TypeError,
    SyntaxError,
    OverflowError,
    MemoryError,
    RuntimeError,  # and its kin: NotImplementedError, RecursionError
    zipfile.BadZipFile,
    zlib.error,
    csv.Error,
)


class FileError(ValueError):
    """A sentence that starts with the file it is about."""


@contextlib.contextmanager
def reading(path: str) -> Iterator[None]:
    """Turn whatever a file's contents raise into one ValueError that starts with the path, or with that of a part."""
    try:
        yield
    except FileError:
        raise
    except FileNotFoundError:
        raise FileError(f"{path}: no such file") from None
    except BROKEN as error:
        reason = str(error).strip().partition("\n")[0]
        if isinstance(error, ValueError) and reason.startswith(f"{path}: "):
            raise FileError(reason) from error
        raise FileError(f"{path}: cannot read predictions: {reason[:300] or type(error).__name__}") from error


def find(path: Any, data: Collection[str]) -> list[Any]:
    """The files that a path, a URI, a folder, a pattern or a list of them means: paths, or `Remote` files.

    Args:
        path: what the caller gave.
        data: names that the file of the data may end in, for ``.npy``.
    """
    if isinstance(path, (str, os.PathLike)):
        return _expand(path, data)
    if not isinstance(path, Sequence):
        raise ValueError(f"path must be a file, a folder, a pattern or a list of them, got {type(path).__name__}")
    files = [file for one in path for file in _expand(one, data)]
    if not files:
        raise ValueError("path must name at least one file, got an empty list")
    seen: set[Any] = set()
    for file in files:
        if file in seen:
            raise ValueError(f"{file}: listed twice")
        seen.add(file)
    return files


def _expand(path: Any, data: Collection[str]) -> list[Any]:
    with reading(str(path)):
        if remote.is_remote(path):
            return _far(path, data)
        if Path(path).is_dir():
            return _shards([p for p in Path(path).iterdir() if p.is_file()], path, "the folder holds", data)
        if Path(path).exists() or not glob.has_magic(str(path)):
            _check_suffix(Path(path))
            return [Path(path)]
        return _shards([Path(p) for p in glob.glob(str(path), recursive=True)], path, "the pattern matches", data)


def _far(uri: str, data: Collection[str]) -> list[Any]:
    verb, files = remote.expand(uri)
    found: list[Any] = files if verb == "file" else _shards(files, uri, verb, data)
    _check_suffix(found[0])
    if suffix_of(found[0]) != ".parquet":
        raise ValueError(f"{found[0]}: from other storage than this machine's Parquet files are read; copy it first")
    return found


def suffix_of(file: Any) -> str:
    """The suffix that tells the format; of compressed files both."""
    both = "".join(file.suffixes[-2:]).lower()
    return both if both.endswith(".gz") else file.suffix.lower()


def _check_suffix(file: Any) -> None:
    suffix = suffix_of(file)
    if suffix not in READ:
        hint = (
            ""
            if suffix not in PICKLES
            else (" (save arrays instead: np.savez('x.npz', logits=..., labels=...); pickles are never read)")
        )
        raise ValueError(
            f"{file}: predictions are files that end in {', '.join(READ)}, got {suffix or file.name!r}{hint}"
        )


def _shards(files: Sequence[Any], path: str | Path, verb: str, data: Collection[str]) -> list[Any]:
    """Files of predictions among others, in natural order; hidden ones and Spark's _SUCCESS are no shards."""
    found = [file for file in files if suffix_of(file) in READ and not file.name.startswith((".", "_"))]
    found = [file for file in found if file.suffix.lower() != ".npy" or array_name(file, data)]
    if not found:
        raise ValueError(f"{path}: {verb} no predictions, expected files that end in {', '.join(READ)}")
    suffixes = sorted({suffix_of(file) for file in found})
    if len(suffixes) > 1:
        raise ValueError(f"{path}: {verb} {' and '.join(suffixes)} files: choose with a pattern such as *{suffixes[0]}")
    if suffixes == [".npy"]:
        _one_per_set(found, path, data)
    return sorted(found, key=natural)


def _one_per_set(files: list[Path], path: str | Path, data: Collection[str]) -> None:
    seen: dict[Path, str] = {}
    for file in files:
        name = array_name(file, data) or ""
        start = file.with_name(file.stem.removesuffix(name))
        if start in seen:
            raise ValueError(f"{path}: holds {seen[start]} and {file.name}: choose with a pattern such as *_{name}.npy")
        seen[start] = file.name


def array_name(file: Any, names: Collection[str] = DATA) -> str | None:
    """Which of the names a ``.npy`` file ends in: ``x_logits.npy`` and ``logits.npy`` end in logits."""
    return next((name for name in names if file.stem == name or file.stem.endswith(f"_{name}")), None)


def natural(path: Any) -> list[tuple[int, str, str]]:
    """Sort key in which 2 comes before 10."""
    parts = re.split(r"([0-9]+)", str(path))
    numbers = [part.lstrip("0") if i % 2 else "" for i, part in enumerate(parts)]
    return [
        (len(number) if i % 2 else -1, number, part)
        for i, (number, part) in enumerate(zip(numbers, parts, strict=True))
    ]
