"""Files that do not lie on this machine: what a URI means, by Arrow's file systems (s3, gs, abfs, hdfs, ...).

A URI may carry the options of its file system, ``s3://bucket/x.parquet?region=eu-west-1``; credentials come from the
environment, as that file system takes them.
"""

from __future__ import annotations

import glob
import re
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import PurePosixPath
from typing import Any

_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")
_OPTIONS = re.compile(r"\?(?=\w+=)[^/]*\Z")  # a question mark is of a pattern unless it begins options
_SECRET = re.compile(r"[^/]+://[^/]*:[^/]*@")


@dataclass(frozen=True)
class Remote:
    """A file by its URI; what is asked of it is what is asked of a path."""

    uri: str

    def __str__(self) -> str:
        return self.uri

    @property
    def _path(self) -> PurePosixPath:
        return PurePosixPath(_OPTIONS.sub("", self.uri))

    @property
    def name(self) -> str:
        """The last part."""
        return self._path.name

    @property
    def stem(self) -> str:
        """The last part, without its suffix."""
        return self._path.stem

    @property
    def suffix(self) -> str:
        """As of a path."""
        return self._path.suffix

    @property
    def suffixes(self) -> list[str]:
        """As of a path."""
        return self._path.suffixes

    def stamp(self) -> tuple[int, int]:
        """Bytes, and when they were last written."""
        system, path = _system(self.uri)
        found = system.get_file_info(path)
        if not found.is_file:
            raise FileNotFoundError(self.uri)
        return found.size or 0, found.mtime_ns or 0

    def open(self) -> Any:
        """For reading here and there."""
        system, path = _system(self.uri)
        return system.open_input_file(path)


def _system(uri: str) -> tuple[Any, str]:
    """The file system of a URI, and what it calls the file; loaded here, as most predictions are not far away."""
    from pyarrow.fs import FileSystem

    system, path = FileSystem.from_uri(uri)
    return system, path


def is_remote(path: Any) -> bool:
    """Whether something names a file by a URI."""
    return isinstance(path, str) and _URI.match(path) is not None


def expand(uri: str) -> tuple[str, list[Remote]]:
    """What a URI of a file, a folder or a pattern means, and how to say so: ``"file"`` is one, unseen as yet."""
    if _SECRET.match(uri):
        raise ValueError("credentials belong into the environment: what is opened is named in reports")
    options = (_OPTIONS.search(uri) or [""])[0]
    plain = uri.removesuffix(options)
    if not glob.has_magic(plain):
        system, path = _system(uri)
        if system.get_file_info(path).type.name != "Directory":
            return "file", [Remote(uri)]
        return "the folder holds", _listed(plain.rstrip("/"), options, "*")
    parts = plain.split("/")
    first = next(i for i, part in enumerate(parts) if glob.has_magic(part))
    return "the pattern matches", _listed("/".join(parts[:first]), options, "/".join(parts[first:]))


def _listed(folder: str, options: str, pattern: str) -> list[Remote]:
    """The files below a folder that a pattern matches, part by part; ``**`` is any number of folders."""
    from pyarrow.fs import FileSelector

    system, root = _system(folder + options)
    selector = FileSelector(root, allow_not_found=True, recursive="/" in pattern)
    found = [one.path for one in system.get_file_info(selector) if one.is_file]
    below = [path.removeprefix(root).lstrip("/") for path in found]
    return [Remote(f"{folder}/{path}{options}") for path in below if _matches(path.split("/"), pattern.split("/"))]


def _matches(parts: list[str], pattern: list[str]) -> bool:
    if not pattern:
        return not parts
    if pattern[0] == "**":
        return any(_matches(parts[i:], pattern[1:]) for i in range(len(parts) + 1))
    return bool(parts) and fnmatchcase(parts[0], pattern[0]) and _matches(parts[1:], pattern[1:])
