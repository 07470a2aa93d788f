"""Files of predictions: which files a path means, handles that notice a change, and how a file is opened.

A path is a file, a folder of shards, a pattern or a list. URIs of Parquet in other storage are those of Arrow's file
systems (s3, gs, abfs, hdfs, ...). They may carry the options of their file system,
``s3://bucket/x.parquet?region=eu-west-1``; credentials come from the environment, as that file system takes them.

A file must not change while it is read, and it may be replaced between two uses of its path. So the stamp of a file is
taken from the handle through which its header was read, and every later pass opens a new handle that must have the same
stamp before the first byte is read and after the last.
"""

from __future__ import annotations

import contextlib
import copy
import csv
import glob
import importlib
import os
import re
import zipfile
import zlib
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from typing import IO, Any, ClassVar, NamedTuple

from calibrant.base.arrays import Array
from calibrant.base.files import open_regular
from calibrant.predictions.data import DATA
from calibrant.predictions.labels import LabelDecoder, LabelValues, check_comparable, choose_decoder, read_two_classes
from calibrant.predictions.locations import count_row
from calibrant.predictions.schema import SPLIT, ColumnMap, OpenOptions, Schema, find_positive
from calibrant.predictions.stores import FileStore

#: What is read and written, each with the module of `formats` that does it.
MODULES = {".csv": "text", ".jsonl": "text", ".npy": "arrays", ".npz": "arrays", ".parquet": "tables"}
MODULES |= {".safetensors": "arrays"}
SUFFIXES = tuple(MODULES)
#: What is read, each with the suffix of its format.
READ = {suffix: suffix for suffix in SUFFIXES} | dict.fromkeys((".tsv", ".csv.gz", ".tsv.gz"), ".csv")
READ |= dict.fromkeys((".ndjson", ".jsonl.gz", ".ndjson.gz"), ".jsonl")
#: What to do with files that are not read.
_PICKLES = "save arrays instead: np.savez('x.npz', logits=..., labels=...); pickles are never read"
_JSON = "write one object per line and name it .jsonl; in pandas to_json('x.jsonl', orient='records', lines=True)"
INSTEAD = (
    ((".pt", ".pth", ".pkl", ".pickle", ".joblib", ".ckpt"), _PICKLES),
    ((".xlsx", ".xls", ".ods"), "save the sheet as .csv"),
    ((".json",), _JSON),
    ((".txt", ".dat"), "if it has columns, name it .csv, or .tsv if tabs separate them"),
    ((".feather", ".arrow", ".h5", ".hdf5", ".mat"), "write it as .parquet or .npz"),
)

#: What reading a damaged or hostile file raises: NumPy, Arrow, JSON and Python itself, zipfile, zlib and csv.
_ERRORS = (ValueError, OSError, EOFError, LookupError, TypeError, SyntaxError, OverflowError, MemoryError, RuntimeError)
BROKEN = (*_ERRORS, zipfile.BadZipFile, zlib.error, csv.Error)

RATIO = 100  # predictions are numbers, which compress by a factor of a few
LEAST = 1 << 28  # bytes that any file may become
DEFLATE_RATIO = 1032  # the most bytes that one deflated byte can become

_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")
_SECRET = re.compile(r"[^/]+://[^/]*:[^/]*@")
URI_OPTIONS = re.compile(r"\?(?=\w+=)[^/]*\Z")  # a question mark is part of a pattern unless it begins options


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
        raise FileError(
            f"{path}: {meaning}: a checksum is {crc:08x}, expected {expected:08x}; download or write it again"
        )


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
    buffers: ClassVar = 1 << 14, 1 << 20  # the least and the most bytes to read ahead

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


@dataclass(frozen=True)
class RemoteFile:
    """A file in other storage, as it was when it was opened first."""

    path: str
    stamp: Stamp
    buffers: ClassVar = 1 << 20, 1 << 23  # other storage is asked less often

    @contextlib.contextmanager
    def opened(self) -> Iterator[Any]:
        """A handle of Arrow's for random access; an error, at the latest in the end, if the file changes."""
        self.stamp.check(remote_stamp(self.path), self.path)
        system, path = _file_system(self.path)
        with system.open_input_file(path) as handle:
            yield handle
        self.stamp.check(remote_stamp(self.path), self.path)

    def native_path(self, handle: Any) -> Any:
        """What libraries read, in place of a path."""
        return handle


def remote_stamp(uri: str) -> Stamp:
    """The size of a file in other storage, and when it was last written."""
    system, path = _file_system(uri)
    info = system.get_file_info(path)
    if not info.is_file:
        raise FileNotFoundError(uri)
    return Stamp(info.size or 0, info.mtime_ns or 0)


def _file_system(uri: str) -> tuple[Any, str]:
    """The file system of a URI, and what it calls the file; imported here, as most predictions are local."""
    from pyarrow.fs import FileSystem

    system, path = FileSystem.from_uri(uri)
    return system, path


@contextlib.contextmanager
def open_first(path: Any) -> Iterator[tuple[Any, Any]]:
    """Open a file for the first time, also in other storage: its stamp from now on, and a handle to read its header."""
    if isinstance(path, Remote):
        remote = RemoteFile(str(path), remote_stamp(str(path)))
        if not remote.stamp.size:
            raise ValueError(f"{path}: the file is empty")
        with remote.opened() as handle:
            yield remote, handle
        return
    with open_regular(path) as handle:
        file = DataFile(str(path), Stamp.of(handle))
        if not file.stamp.size:
            raise ValueError(f"{path}: the file is empty")
        yield file, handle
        file.stamp.check(Stamp.of(handle), file.path)


class Remote:
    """The name of a file in other storage, with the parts that a path has."""

    def __init__(self, uri: str):
        path = PurePosixPath(URI_OPTIONS.sub("", uri))
        self.uri, self.name, self.stem = uri, path.name, path.stem
        self.suffix, self.suffixes = path.suffix, path.suffixes

    def __str__(self) -> str:
        return self.uri


def is_remote(path: Any) -> bool:
    """Whether something names a file by a URI."""
    return isinstance(path, str) and _URI.match(path) is not None


def expand_uri(uri: str, data: Collection[str]) -> list[Remote]:
    """The files that a URI means, which may be a folder or a pattern; see `files.find_files`."""
    if _SECRET.match(uri):
        raise ValueError("credentials belong in the environment, as reports name the files they were made from")
    options = (URI_OPTIONS.search(uri) or [""])[0]
    plain = uri.removesuffix(options)
    if glob.has_magic(plain):
        parts = plain.split("/")
        start = next(i for i, part in enumerate(parts) if glob.has_magic(part))
        matches = _list_remote("/".join(parts[:start]), options, "/".join(parts[start:]))
        files = find_shards(matches, uri, "the pattern matches", data)
    else:
        system, path = _file_system(uri)
        files = [Remote(uri)]
        if system.get_file_info(path).type.name == "Directory":
            files = find_shards(_list_remote(plain.rstrip("/"), options, "*"), uri, "the folder holds", data)
    check_suffix(files[0])
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
            return expand_uri(path, data)
        if Path(path).is_dir():
            return find_shards([p for p in Path(path).iterdir() if p.is_file()], path, "the folder holds", data)
        if Path(path).exists() or not glob.has_magic(str(path)):
            check_suffix(Path(path))
            return [Path(path)]
        return find_shards([Path(p) for p in glob.glob(str(path), recursive=True)], path, "the pattern matches", data)


def suffix_of(file: Any) -> str:
    """The suffix that tells the format; of compressed files both."""
    suffixes = "".join(file.suffixes[-2:]).lower()
    return suffixes if suffixes.endswith(".gz") else file.suffix.lower()


def check_suffix(file: Any) -> None:
    """Refuse a file of no format that is read."""
    suffix = suffix_of(file)
    if suffix not in READ:
        advice = next((text for suffixes, text in INSTEAD if suffix.removesuffix(".gz") in suffixes), "")
        actual = f"{suffix or file.name!r}{advice and f' ({advice})'}"
        raise ValueError(f"{file}: predictions are files that end in {', '.join(READ)}, got {actual}")


def find_shards(files: Sequence[Any], path: str | Path, verb: str, data: Collection[str]) -> list[Any]:
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


class Reader:
    """One file, or one set of ``.npy`` files; a file replaced between reads is noticed, although no handle is kept.

    ``count`` is the number of samples, None if that takes a pass over the file.
    """

    has_text_labels = False

    def __init__(self, path: str, columns: ColumnMap, schema: Schema, count: int | None):
        self.path, self.columns, self.schema, self.count = path, columns, schema, count
        self.names, self.naming = tuple(name for name in columns.columns if name != SPLIT), columns.naming
        self.decoder = LabelDecoder(schema.class_names)

    def rows(self) -> int:
        """The number of samples, counted if necessary."""
        assert self.count is not None
        return self.count

    def file_of(self, name: str) -> str:
        """The file that a column is in."""
        return self.path

    def name_row(self, row: int) -> str:
        """The name of a row in errors."""
        return count_row(row)

    def pieces(self, names: Sequence[str], rows: int) -> Iterator[dict[str, Array]]:
        """All rows of some columns in order, unchecked, in pieces of at most ``rows``."""
        raise NotImplementedError

    def mapped(self, name: str) -> Array | None:
        """A whole column as a map of the file, or None."""
        return None

    def without(self, name: str) -> Reader:
        """The same file without a column of ours."""
        reader = copy.copy(self)
        kept = {key: source for key, source in self.columns.columns.items() if key != name}
        reader.columns, reader.names = replace(self.columns, columns=kept), tuple(n for n in self.names if n != name)
        return reader

    def needs_labels(self) -> bool:
        """Whether all labels must be seen to know how they are read: text, or numbers that may be names."""
        unclear = self.columns.one_column or (self.naming.codes is not None and not self.naming.certain)
        return "labels" in self.names and (unclear or self.has_text_labels)

    def label_values(self) -> LabelValues:
        """The different labels."""
        raise NotImplementedError

    def compared_values(self) -> tuple[LabelValues, LabelValues] | None:
        """The different values of predicted and labels, if they are compared and not yet checked."""
        return None

    def set_decoder(self, decoder: LabelDecoder) -> None:
        """Use a decoder for the labels from now on."""
        self.schema = replace(self.schema, class_names=decoder.names, positive=decoder.positive)
        self.decoder = decoder


def format_of(path: Path) -> str:
    """The format that a file is written in, as a suffix."""
    suffix = suffix_of(path)
    if suffix not in SUFFIXES:
        raise ValueError(f"{path}: predictions are written as {', '.join(SUFFIXES)}, got {suffix or path.name!r}")
    return suffix


def format_function(verb: str, suffix: str) -> Any:
    """The function that opens or saves a format; what it needs is imported with it."""
    module = importlib.import_module(f"calibrant.predictions.formats.{MODULES[suffix]}")
    return getattr(module, f"{verb}_{suffix[1:]}")


def open_files(path: Any, options: OpenOptions) -> FileStore:
    """Open the files that a path means; see `Predictions.open`."""
    data = [str(options.columns[name]) for name in DATA if name in options.columns]
    readers: list[Reader] = []
    for file in find_files(path, data or DATA):
        with file_errors(str(file)):
            readers.append(format_function("open", READ[suffix_of(file)])(file, options))
        _check_shard(readers[0], readers[-1])
    choose_decoders(readers)
    return FileStore(readers)


def choose_decoders(readers: Sequence[Reader]) -> None:
    """Decide, once for all files, what their labels mean."""
    values = LabelValues()
    if any(reader.needs_labels() for reader in readers):
        for reader in readers:
            with file_errors(reader.path):
                labels = reader.label_values()
            values.add(labels.numbers)
            values.add(labels.texts)
    decoder = _choose_decoder(readers[0], values)
    for reader in readers:
        with file_errors(reader.path):
            pair = reader.compared_values()
        if pair is not None:
            check_comparable(*pair, reader.path)
        reader.set_decoder(decoder)


def _choose_decoder(reader: Reader, values: LabelValues) -> LabelDecoder:
    """Choose how labels are read, from all labels, and the positive class of two."""
    columns, naming, schema, prefix = reader.columns, reader.naming, reader.schema, f"{reader.path}: "
    if columns.one_column:
        (column,) = columns.sources(schema.holds)
        return read_two_classes(values, columns.positive, naming.names, column, schema.ignore_index, prefix)
    decoder = LabelDecoder(naming.names, unclear=naming.unclear)  # of labels that are positions
    if naming.codes or values.numbers or values.texts:
        decoder = choose_decoder(naming, values, schema, reader.path)
    return replace(decoder, positive=find_positive(columns.positive, decoder.names, schema.num_classes, prefix))


def _check_shard(reference: Reader, reader: Reader) -> None:
    facts: dict[str, tuple[Any, Any]] = {"columns": (sorted(reference.columns.columns), sorted(reader.columns.columns))}
    facts |= {name: (value, getattr(reader.schema, name)) for name, value in vars(reference.schema).items()}
    facts["numbers of the classes"] = (reference.naming.codes, reader.naming.codes)
    facts["the positive class"] = (reference.columns.positive, reader.columns.positive)
    for name, (expected, value) in facts.items():
        if value != expected:
            raise ValueError(
                f"{reader.path}: shards must hold the same, "
                f"got {name} {str(value)[:80]} where {reference.path} has {str(expected)[:80]}"
            )
