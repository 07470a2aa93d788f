"""Local files: results are written under a temporary name and renamed, input comes from regular files of bounded size.

Devices, pipes and addresses of remote storage are refused, for reading and for writing. What a killed process leaves
behind is recognised by its name, and by a lock that ends with the process that holds it.

Input is not trusted. JSON and TOML have bounded nesting. The header of a ``.npy`` array has a bounded length and is
parsed by NumPy, its type must be a number, a text or a date, and the caller checks sizes before allocation.
"""

from __future__ import annotations

import contextlib
import fcntl
import glob
import hashlib
import io
import json
import math
import os
import re
import stat
import tempfile
import tomllib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple, NoReturn

if TYPE_CHECKING:
    import numpy as np

#: How the name of a file starts while it is being written; no other files are called that.
PART = ".calibrant-part."
_PART_NAME = re.compile(re.escape(PART) + r"(?P<target>[0-9a-f]{12})\.\w{8}(\.\w{1,20})?")

#: Nesting that JSON and TOML may have; Calibrant's own files need less than ten levels.
DEEPEST = 64
_TOML_STRING = re.compile(r'"(?:[^"\\\n]|\\.)*"|\'[^\'\n]*\'')
_TOML_DEEP_KEY = re.compile(rf"(?:[\w-]+[ \t]*\.[ \t]*){{{DEEPEST}}}")

MAGIC = b"\x93NUMPY"
LONGEST_HEADER = 10_000  # bytes: NumPy's own limit
CHUNK = 1 << 18  # bytes that are read at a time

#: What is read of a folder of predictions, and of any folder.
_SHARDS = (".csv", ".tsv", ".jsonl", ".ndjson", ".npy", ".npz", ".parquet", ".safetensors", ".gz")
_READ = (*_SHARDS, ".png")
_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")
_KINDS = {stat.S_IFIFO: "a named pipe", stat.S_IFSOCK: "a socket", stat.S_IFDIR: "a folder"}
_KINDS[stat.S_IFCHR] = _KINDS[stat.S_IFBLK] = "a device"

# Folders that were searched by this process, each with the leftovers of killed writes by the file they were meant for.
_searched: dict[str, dict[str, list[str]]] = {}


@contextlib.contextmanager
def written_aside(path: str | Path) -> Iterator[Path]:
    """Give a temporary path beside ``path`` (same suffix), and rename it to ``path`` if the block succeeds.

    The file and its folder are synced to disk, so that after a power cut there is either the old file or the new one.
    If the block fails, nothing remains, not even folders that were created for the file.
    """
    path = Path(path)
    check_output(path)
    with _create_parents(path), _name_in_errors(path):
        _remove_killed_writes(path)
        suffix = path.suffix if re.fullmatch(r"\.\w{1,20}", path.suffix) else ""
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f"{PART}{_target(path)}.", suffix=suffix)
        aside = Path(name)
        try:
            with contextlib.suppress(OSError):  # a file system without locks
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield aside
            umask = os.umask(0)
            os.umask(umask)
            aside.chmod(0o666 & ~umask)
            sync(aside)
            os.replace(aside, path)
            sync(path.parent)
        except BaseException:
            with contextlib.suppress(OSError):
                aside.unlink(missing_ok=True)
            raise
        finally:
            os.close(handle)


def write_json(path: str | Path, value: Any) -> None:
    """Write a JSON file, completely or not at all."""
    with written_aside(path) as aside:
        aside.write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")


def sync(path: Path) -> None:
    """Flush a file or a folder to the disk, where the file system can."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError:
        if not stat.S_ISDIR(os.fstat(handle).st_mode):  # some file systems cannot sync folders
            raise
    finally:
        os.close(handle)


def check_output(path: str | Path, *, folder: bool = False, inputs: Iterable[str | Path | None] = ()) -> None:
    """Refuse remote storage, devices and pipes, and a folder where a file is meant or (``folder``) the reverse.

    Refuse also what would overwrite one of the ``inputs`` of a command: files, patterns, and folders, of which tables,
    arrays and images count, however deep they lie. None is no input. A file is known by whatever name it has: links,
    symbolic or hard, do not hide it.
    """
    if _URI.match(str(path)):
        raise ValueError(f"{path}: results are written to this machine alone; write a file here and copy it")
    _check_inputs(path, inputs)
    try:
        mode = os.stat(str(path)).st_mode
    except FileNotFoundError:
        return
    expected, is_expected = ("a folder", stat.S_ISDIR) if folder else ("a file", stat.S_ISREG)
    if not is_expected(mode):
        raise ValueError(f"{path}: expected {expected} to write to, got {kind_of(mode)}")


def _check_inputs(path: str | Path, inputs: Iterable[str | Path | None]) -> None:
    """Refuse an output that is one of the inputs, or is written with a file that is."""
    outputs = [Path(path)]
    if Path(path).suffix.lower() == ".npy":  # written as a set, x_logits.npy with x_labels.npy
        start = Path(path).stem.rpartition("_")[0]
        outputs += [file for file in Path(path).parent.glob("*.npy") if file.stem.rpartition("_")[0] == start]
    stats = [file.stat() for file in outputs if file.exists()]
    for name in inputs if stats else ():
        if name is None or _URI.match(str(name)):
            continue
        matches = [str(name)] if os.path.exists(name) else glob.glob(str(name), recursive=True)
        files = []
        for match in map(Path, matches):
            shards = match.iterdir() if match.is_dir() else ()
            files += [match, *(file for file in shards if file.name.lower().endswith(_SHARDS))]
            # Deeper down lie weights of a run and images of a data set: too many to look at each.
            target = Path(path).resolve()
            if match.is_dir() and target.is_relative_to(match.resolve()) and target.name.lower().endswith(_READ):
                files.append(target)
        if any(os.path.samestat(file.stat(), output) for file in files if file.exists() for output in stats):
            raise ValueError(f"{path}: the input {name} would be overwritten, write to another file")


def kind_of(mode: int) -> str:
    """What a file's mode says it is, in words."""
    return _KINDS.get(stat.S_IFMT(mode), "a file")


@contextlib.contextmanager
def _create_parents(path: Path) -> Iterator[None]:
    """Create the folders of a file, and remove those that were created if the block fails."""
    created = [parent for parent in path.parents if not parent.exists()]
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield
    except BaseException:
        with contextlib.suppress(OSError):  # not empty: somebody else uses it by now
            for parent in created:
                parent.rmdir()
        raise


@contextlib.contextmanager
def _name_in_errors(path: Path) -> Iterator[None]:
    """Name the file that is written in errors that name its temporary file, or none."""
    try:
        yield
    except OSError as error:
        if error.errno is not None and PART in str(error.filename or PART):
            raise OSError(error.errno, error.strerror, str(path)) from error
        raise


def _target(path: Path) -> str:
    """The part of a temporary name that tells which file it is for, of fixed length."""
    return hashlib.sha256(os.fsencode(path.name)).hexdigest()[:12]


def _remove_killed_writes(path: Path) -> None:
    """Remove what killed processes had begun to write for this file."""
    folder = str(path.parent)
    if folder not in _searched:
        _searched[folder] = {}
        for name, target in _parts_in(folder):
            _searched[folder].setdefault(target, []).append(name)
    for name in _searched[folder].pop(_target(path), ()):
        _remove_unless_locked(os.path.join(folder, name))


def remove_leftovers(folder: str | Path) -> None:
    """Remove what killed processes had begun to write, in a folder that holds only our own files."""
    for name, _ in _parts_in(str(folder)):
        _remove_unless_locked(os.path.join(folder, name))


def _parts_in(folder: str) -> list[tuple[str, str]]:
    """Names of half-written files in a folder, and which file each was meant for."""
    with os.scandir(folder) as entries:
        matches = [_PART_NAME.fullmatch(e.name) for e in entries if e.name.startswith(PART)]
    return [(match[0], match["target"]) for match in matches if match]


def _remove_unless_locked(name: str) -> None:
    with contextlib.suppress(OSError):
        handle = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.unlink(name)
        finally:
            os.close(handle)


def open_regular(path: str | Path) -> IO[bytes]:
    """Open a regular file for reading; a pipe, a device or a folder is refused, so that nothing waits for it."""
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    mode = os.fstat(handle).st_mode
    if not stat.S_ISREG(mode):
        os.close(handle)
        raise ValueError(f"{path}: expected a file, got {kind_of(mode)}")
    return os.fdopen(handle, "rb")


def read_regular(path: str | Path, limit: int) -> bytes:
    """The bytes of a regular file of at most ``limit`` bytes; the size is checked before anything is read."""
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size > limit:
            raise ValueError(f"{path}: expected at most {limit:,} bytes, got {size:,}")
        data = file.read(limit + 1)
    if len(data) > limit:
        raise ValueError(f"{path}: expected at most {limit:,} bytes, got more")
    return data


def read_json(path: str | Path, limit: int, expected: str) -> Any:
    """The value in a JSON file, which errors call ``expected``, "a policy"; all of them start with the path."""
    try:
        return parse_json(read_regular(path, limit), expected)
    except FileNotFoundError:
        raise ValueError(f"{path}: no such file") from None
    except ValueError as error:
        raise ValueError(str(error) if str(error).startswith(f"{path}: ") else f"{path}: {error}") from None


def parse_json(text: str | bytes, expected: str) -> Any:
    """The value of a JSON text: names differ, numbers are finite, and nesting is bounded.

    Example:
        >>> parse_json('{"a": [1, 2.5]}', "an example")
        {'a': [1, 2.5]}
        >>> parse_json('{"a": 1, "a": 2}', "an example")
        Traceback (most recent call last):
        ...
        ValueError: not an example: the name 'a' appears twice
    """

    def load(text: str) -> Any:
        return json.loads(
            text, object_pairs_hook=_unique_names, parse_constant=_refuse_constant, parse_float=_finite_float
        )

    return _parse(text, expected, load)


def parse_toml(text: str | bytes, expected: str) -> dict[str, Any]:
    """The tables of a TOML text, with bounded nesting."""

    def load(text: str) -> Any:
        if _TOML_DEEP_KEY.search(_TOML_STRING.sub("s", text)):  # before parsing, whose time is quadratic in the depth
            raise RecursionError
        return tomllib.loads(text)

    tables: dict[str, Any] = _parse(text, expected, load)
    return tables


def _parse(text: str | bytes, expected: str, load: Callable[[str], Any]) -> Any:
    """The value of a text; whatever is wrong with it is one sentence."""
    try:
        value = load(text.decode("utf-8") if isinstance(text, bytes) else text)
    except RecursionError:
        raise ValueError(f"not {expected}: nested deeper than {DEEPEST} levels") from None
    except UnicodeDecodeError:
        raise ValueError(f"not {expected}: the text is not UTF-8") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"not {expected}: {error.msg} in line {error.lineno}") from None
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"not {expected} in TOML ({error})") from None
    except ValueError as error:
        reason = "a number has too many digits" if "digits" in str(error) else str(error)
        raise ValueError(f"not {expected}: {reason}") from None
    check_depth(value, expected)
    return value


def check_depth(value: Any, expected: str) -> None:
    """Refuse values nested so deeply that other code would fail on them."""
    level = [value]
    for _ in range(DEEPEST):
        level = [
            inner
            for outer in level
            if isinstance(outer, dict | list)
            for inner in (outer.values() if isinstance(outer, dict) else outer)
        ]
        if not level:
            return
    raise ValueError(f"not {expected}: nested deeper than {DEEPEST} levels")


def _unique_names(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    names = dict(pairs)
    if len(names) < len(pairs):
        repeated, _ = Counter(name for name, _ in pairs).most_common(1)[0]
        raise ValueError(f"the name {repeated[:60]!r} appears twice")
    return names


def _refuse_constant(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not a number in JSON")


def _finite_float(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text[:40]} is too large a number")
    return value


class ArrayHeader(NamedTuple):
    """What the header of a ``.npy`` array says."""

    named: np.dtype[Any]  # the type, whatever it is
    shape: tuple[int, ...]
    fortran: bool  # whether the array lies column by column
    size: int  # the number of bytes before those of the array

    @property
    def code(self) -> str:
        """The type as NumPy spells it, "<f4"."""
        return self.named.str

    @property
    def kind(self) -> str:
        """The kind of the type as `numpy.dtype.kind` has it; ``"V"`` if it is no number, text or date."""
        return self.named.kind if self.named.kind in "biufcUSmM" and self.named.itemsize else "V"

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type; an error if it is no number, text or date."""
        if self.kind == "V":
            hint = " (objects: save text as labels.astype(str), numbers as .astype(float))" if "O" in self.code else ""
            raise ValueError(f"arrays of numbers or text are read and nothing is unpickled, got {self.code!r}{hint}")
        return self.named

    @property
    def data_size(self) -> int:
        """How many bytes the array has by its type and shape."""
        return math.prod(self.shape) * self.dtype.itemsize


def read_header(file: Any) -> ArrayHeader:
    """Read the header of a ``.npy`` array from where a file stands; NumPy parses it, and evaluates nothing in it."""
    from numpy.lib import format as npy  # here, because most users of files need no arrays

    start = file.read(8)
    if start[:6] != MAGIC or len(start) < 8:
        raise ValueError("not a .npy array")
    if start[6] not in (1, 2, 3):
        raise ValueError(f"not a .npy array of version 1, 2 or 3, got version {start[6]}.{start[7]}")
    width = file.read(2 if start[6] == 1 else 4)
    length = int.from_bytes(width, "little")
    if length > LONGEST_HEADER:
        raise ValueError(f"the header of a .npy array is at most {LONGEST_HEADER} bytes, got {length}")
    text = file.read(length)
    parse = npy.read_array_header_1_0 if start[6] == 1 else npy.read_array_header_2_0
    try:
        shape, fortran, named = parse(io.BytesIO(width + text))
    except Exception:  # whatever the parser meets
        excerpt = text[:100].decode("latin-1")
        raise ValueError(f"the header of the .npy array is cut off or damaged: {excerpt!r}") from None
    if not all(0 <= length < 2**63 for length in shape):
        raise ValueError(f"the header of the .npy array names a shape that no array has, {list(shape)!r:.60}")
    return ArrayHeader(named, shape, fortran, 8 + len(width) + length)


def read_values(file: Any, header: ArrayHeader) -> np.ndarray[Any, np.dtype[Any]]:
    """Read the array from where a file stands after its header, whose size the caller has checked."""
    import numpy as np

    values = np.empty(math.prod(header.shape), header.dtype)
    read_into(file, values.view(np.uint8).data)
    return values.reshape(header.shape, order="F" if header.fortran else "C")


def read_into(file: Any, space: memoryview) -> None:
    """Fill a buffer from where a file stands."""
    while space:
        count = file.readinto(space[:CHUNK])
        if not count:
            raise ValueError("the file ends before its array does")
        space = space[count:]


def json_value(value: Any) -> Any:
    """The value as JSON has it: NaN and infinity as None, NumPy's arrays and numbers as Python's."""
    if type(value) is float:  # first, because most values are
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {name: json_value(inner) for name, inner in value.items()}
    if hasattr(value, "tolist"):
        return json_value(value.tolist())
    if isinstance(value, list | tuple):
        return [json_value(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def nulls_as_nan(value: Any) -> Any:
    """Numbers read from JSON, with NaN for null."""
    if isinstance(value, dict):
        return {name: nulls_as_nan(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [nulls_as_nan(inner) for inner in value]
    return math.nan if value is None else value
