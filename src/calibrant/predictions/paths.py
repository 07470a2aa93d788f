"""The files that a path or URI means, and handles on them that notice whether a file has changed.

A path is a file, a folder of shards, a pattern or a list. URIs are those of Arrow's file systems (s3, gs, abfs, hdfs,
...). They may carry the options of their file system, ``s3://bucket/x.parquet?region=eu-west-1``; credentials come from
the environment, as that file system takes them.

A file must not change while it is read, and it may be replaced between two uses of its path. So the stamp of a file is
taken from the handle through which its header was read, and every later pass opens a new handle that must have the same
stamp before the first byte is read and after the last.
"""

from __future__ import annotations

import contextlib
import csv
import glob
import os
import re
import zipfile
import zlib
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from typing import IO, Any, NamedTuple

from calibrant._files import open_regular

SUFFIXES = (".csv", ".jsonl", ".npy", ".npz", ".parquet", ".safetensors")
#: What is read, each with the suffix of its format.
READ = {suffix: suffix for suffix in SUFFIXES} | dict.fromkeys((".tsv", ".csv.gz", ".tsv.gz"), ".csv")
READ |= dict.fromkeys((".ndjson", ".jsonl.gz", ".ndjson.gz"), ".jsonl")
#: What to do with files that are not read.
INSTEAD = (
    (
        (".pt", ".pth", ".pkl", ".pickle", ".joblib", ".ckpt"),
        "save arrays instead: np.savez('x.npz', logits=..., labels=...); pickles are never read",
    ),
    ((".xlsx", ".xls", ".ods"), "save the sheet as .csv"),
    (
        (".json",),
        "write one object per line and name it .jsonl; in pandas to_json('x.jsonl', orient='records', lines=True)",
    ),
    ((".txt", ".dat"), "if it has columns, name it .csv, or .tsv if tabs separate them"),
    ((".feather", ".arrow", ".h5", ".hdf5", ".mat"), "write it as .parquet or .npz"),
)

#: What reading a damaged or hostile file raises: NumPy, Arrow, JSON and Python itself, zipfile, zlib and csv.
_ERRORS = (ValueError, OSError, EOFError, LookupError, TypeError, SyntaxError, OverflowError, MemoryError, RuntimeError)
BROKEN = (*_ERRORS, zipfile.BadZipFile, zlib.error, csv.Error)

_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")
_OPTIONS = re.compile(r"\?(?=\w+=)[^/]*\Z")  # a question mark is part of a pattern unless it begins options
_SECRET = re.compile(r"[^/]+://[^/]*:[^/]*@")

RATIO = 100  # predictions are numbers, which compress by a factor of a few
LEAST = 1 << 28  # bytes that any file may become
DEFLATE_RATIO = 1032  # the most bytes that one deflated byte can become


class FileError(ValueError):
    """A sentence that starts with the file it is about."""


@contextlib.contextmanager
def file_errors(path: str) -> Iterator[None]:
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


def check_expansion(name: str, size: int, compressed: int) -> None:
    """Refuse what becomes far larger than numbers do, ``size`` bytes out of ``compressed``."""
    if size > max(LEAST, RATIO * compressed):
        limit = f"at most {RATIO} times as large as its {compressed:,} bytes"
        raise ValueError(f"{name} must become {limit} when it is decompressed, got at least {size:,} bytes")


def check_crc(crc: int, expected: int, path: str, meaning: str = "the file is damaged") -> None:
    """Refuse bytes that are not those that were written; ``meaning`` is what a wrong checksum says."""
    if crc != expected:
        raise FileError(f"{path}: {meaning}: a checksum is {crc:08x}, expected {expected:08x}; get or write it again")


class Stamp(NamedTuple):
    """Identifies one state of a file; None matches anything."""

    size: int
    modified: int
    inode: int | None = None
    changed: int | None = None

    @classmethod
    def of(cls, handle: IO[bytes]) -> Stamp:
        """The stamp of the file behind a handle."""
        status = os.fstat(handle.fileno())
        return cls(status.st_size, status.st_mtime_ns, status.st_ino, status.st_ctime_ns)

    def check(self, other: Stamp, path: str) -> None:
        """Refuse another state of the file: one in which something that both stamps know differs."""
        if not all(a == b or None in (a, b) for a, b in zip(self, other, strict=True)):
            raise FileError(f"{path}: the file has changed since it was opened")


@dataclass(frozen=True)
class DataFile:
    """A file on this machine, as it was when it was opened first."""

    path: str
    stamp: Stamp

    @contextlib.contextmanager
    def opened(self) -> Iterator[IO[bytes]]:
        """A handle of this file and no other; an error, at the latest in the end, if it changes."""
        with open_regular(self.path) as handle:
            self.stamp.check(Stamp.of(handle), self.path)
            yield handle
            self.stamp.check(Stamp.of(handle), self.path)

    def native_path(self, handle: IO[bytes]) -> str:
        """A path for libraries that need one: it leads to the file behind a handle, even if that was replaced."""
        path = f"/dev/fd/{handle.fileno()}"
        return path if os.path.exists(path) else self.path  # without /dev/fd only the check in the end protects

    def __getstate__(self) -> dict[str, Any]:
        """Other machines that share the storage may count its inodes differently."""
        return {"path": self.path, "stamp": Stamp(self.stamp.size, self.stamp.modified)}


@contextlib.contextmanager
def open_first(path: Path) -> Iterator[tuple[DataFile, IO[bytes]]]:
    """Open a file for the first time: its stamp from now on, and a handle to read its header."""
    with open_regular(path) as handle:
        file = DataFile(str(path), Stamp.of(handle))
        if not file.stamp.size:
            raise ValueError(f"{path}: the file is empty")
        yield file, handle
        file.stamp.check(Stamp.of(handle), file.path)


@dataclass(frozen=True)
class RemoteFile:
    """A file in other storage, as it was when it was opened first."""

    path: str
    stamp: Stamp

    @contextlib.contextmanager
    def opened(self) -> Iterator[Any]:
        """A handle of Arrow's for random access; an error, at the latest in the end, if the file changes."""
        self.stamp.check(remote_stamp(self.path), self.path)
        system, path = _file_system(self.path)
        with system.open_input_file(path) as handle:
            yield handle
        self.stamp.check(remote_stamp(self.path), self.path)


def remote_stamp(uri: str) -> Stamp:
    """The size of a file in other storage, and when it was last written."""
    system, path = _file_system(uri)
    info = system.get_file_info(path)
    if not info.is_file:
        raise FileNotFoundError(uri)
    return Stamp(info.size or 0, info.mtime_ns or 0)


class Remote:
    """The name of a file in other storage, with the parts that a path has."""

    def __init__(self, uri: str):
        path = PurePosixPath(_OPTIONS.sub("", uri))
        self.uri, self.name, self.stem = uri, path.name, path.stem
        self.suffix, self.suffixes = path.suffix, path.suffixes

    def __str__(self) -> str:
        return self.uri


def is_remote(path: Any) -> bool:
    """Whether something names a file by a URI."""
    return isinstance(path, str) and _URI.match(path) is not None


def _file_system(uri: str) -> tuple[Any, str]:
    """The file system of a URI, and what it calls the file; imported here, as most predictions are local."""
    from pyarrow.fs import FileSystem

    system, path = FileSystem.from_uri(uri)
    return system, path


def find_files(path: Any, data: Collection[str]) -> list[Any]:
    """The files that a path, a URI, a folder, a pattern or a list of them means: paths, or `Remote` files.

    ``data`` are the names that the file of the data may end in, for ``.npy``.
    """
    if isinstance(path, (str, os.PathLike)):
        return _expand(path, data)
    if not isinstance(path, Sequence):
        raise ValueError(f"path must be a file, a folder, a pattern or a list of them, got {type(path).__name__}")
    files = [file for entry in path for file in _expand(entry, data)]
    if not files:
        raise ValueError("path must name at least one file, got an empty list")
    name, count = Counter(map(str, files)).most_common(1)[0]
    if count > 1:
        raise ValueError(f"{name}: listed twice")
    return files


def _expand(path: Any, data: Collection[str]) -> list[Any]:
    with file_errors(str(path)):
        if is_remote(path):
            return _expand_uri(path, data)
        if Path(path).is_dir():
            return _shards([p for p in Path(path).iterdir() if p.is_file()], path, "the folder holds", data)
        if Path(path).exists() or not glob.has_magic(str(path)):
            _check_suffix(Path(path))
            return [Path(path)]
        return _shards([Path(p) for p in glob.glob(str(path), recursive=True)], path, "the pattern matches", data)


def _expand_uri(uri: str, data: Collection[str]) -> list[Any]:
    if _SECRET.match(uri):
        raise ValueError("credentials belong in the environment, as reports name the files they were made from")
    options = (_OPTIONS.search(uri) or [""])[0]
    plain = uri.removesuffix(options)
    if glob.has_magic(plain):
        parts = plain.split("/")
        start = next(i for i, part in enumerate(parts) if glob.has_magic(part))
        matches = _list_remote("/".join(parts[:start]), options, "/".join(parts[start:]))
        files = _shards(matches, uri, "the pattern matches", data)
    else:
        system, path = _file_system(uri)
        files = [Remote(uri)]
        if system.get_file_info(path).type.name == "Directory":
            files = _shards(_list_remote(plain.rstrip("/"), options, "*"), uri, "the folder holds", data)
    _check_suffix(files[0])
    if suffix_of(files[0]) != ".parquet":
        raise ValueError(f"{files[0]}: only Parquet is read from remote storage; copy the file to this machine first")
    return files


def _list_remote(folder: str, options: str, pattern: str) -> list[Remote]:
    """The files below a folder that a pattern matches, part by part; ``**`` is any number of folders."""
    from pyarrow.fs import FileSelector

    system, root = _file_system(folder + options)
    selector = FileSelector(root, allow_not_found=True, recursive="/" in pattern)
    paths = [info.path.removeprefix(root).lstrip("/") for info in system.get_file_info(selector) if info.is_file]
    return [Remote(f"{folder}/{path}{options}") for path in paths if _matches(path.split("/"), pattern.split("/"))]


def _matches(parts: list[str], pattern: list[str]) -> bool:
    if not pattern:
        return not parts
    if pattern[0] == "**":
        return any(_matches(parts[i:], pattern[1:]) for i in range(len(parts) + 1))
    return bool(parts) and fnmatchcase(parts[0], pattern[0]) and _matches(parts[1:], pattern[1:])


def suffix_of(file: Any) -> str:
    """The suffix that tells the format; of compressed files both."""
    suffixes = "".join(file.suffixes[-2:]).lower()
    return suffixes if suffixes.endswith(".gz") else file.suffix.lower()


def _check_suffix(file: Any) -> None:
    suffix = suffix_of(file)
    if suffix not in READ:
        advice = next((text for suffixes, text in INSTEAD if suffix.removesuffix(".gz") in suffixes), "")
        actual = f"{suffix or file.name!r}{advice and f' ({advice})'}"
        raise ValueError(f"{file}: predictions are files that end in {', '.join(READ)}, got {actual}")


def _shards(files: Sequence[Any], path: str | Path, verb: str, data: Collection[str]) -> list[Any]:
    """Files of predictions among others, in natural order; hidden ones and Spark's _SUCCESS are no shards."""
    shards = [file for file in files if suffix_of(file) in READ and not file.name.startswith((".", "_"))]
    shards = [file for file in shards if file.suffix.lower() != ".npy" or array_name(file, data)]
    if not shards:
        raise ValueError(f"{path}: {verb} no predictions, expected files that end in {', '.join(READ)}")
    suffixes = sorted({suffix_of(file) for file in shards})
    if len(suffixes) > 1:
        raise ValueError(f"{path}: {verb} {' and '.join(suffixes)} files: choose with a pattern such as *{suffixes[0]}")
    if suffixes == [".npy"]:
        _check_sets(shards, path, data)
    return sorted(shards, key=_natural_order)


def _check_sets(files: list[Path], path: str | Path, data: Collection[str]) -> None:
    """Refuse two files of data, such as logits and probabilities, in one set of ``.npy`` files."""
    names: dict[Path, str] = {}
    for file in files:
        name = array_name(file, data) or ""
        start = file.with_name(file.stem.removesuffix(name))
        if start in names:
            pair = f"{names[start]} and {file.name}"
            raise ValueError(f"{path}: holds {pair}: choose with a pattern such as *_{name}.npy")
        names[start] = file.name


def array_name(file: Any, names: Collection[str]) -> str | None:
    """Which of the names a ``.npy`` file ends in: ``x_logits.npy`` and ``logits.npy`` end in logits."""
    return next((name for name in names if file.stem == name or file.stem.endswith(f"_{name}")), None)


def _natural_order(path: Any) -> list[tuple[int, str, str]]:
    """Sort key in which 2 comes before 10."""
    parts = re.split(r"([0-9]+)", str(path))
    numbers = [part.lstrip("0") if i % 2 else "" for i, part in enumerate(parts)]
    lengths = [len(number) if i % 2 else -1 for i, number in enumerate(numbers)]
    return list(zip(lengths, numbers, parts, strict=True))
