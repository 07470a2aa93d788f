"""Files that must not change while they are read: known by a stamp, and every pass through one handle.

A path is only a name: between two uses of it another file may have taken the place of the first. So the stamp of a
file is taken from the very handle through which its header was read, and every later pass opens a handle of its own
that must bear the same stamp before the first byte is read and after the last.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, NamedTuple

from calibrant._files import open_regular
from calibrant.predictions.remote import Remote
from calibrant.predictions.shards import FileError


class Stamp(NamedTuple):
    """What tells one state of a file from another; None matches anything."""

    size: int
    modified: int
    inode: int | None = None
    changed: int | None = None

    def matches(self, other: Stamp) -> bool:
        """Whether nothing that both know differs."""
        return all(ours == theirs or None in (ours, theirs) for ours, theirs in zip(self, other, strict=True))


@dataclass(frozen=True)
class DataFile:
    """A file on this machine, as it was when it was opened first."""

    path: str
    stamp: Stamp

    @contextlib.contextmanager
    def opened(self) -> Iterator[IO[bytes]]:
        """A handle of this file and no other; an error, at the latest in the end, if it changes."""
        with open_regular(self.path) as handle:
            self.check(handle)
            yield handle
            self.check(handle)

    def check(self, handle: IO[bytes]) -> None:
        """Refuse a handle of another file, or of this one in another state."""
        if not self.stamp.matches(_stamp(handle)):
            raise FileError(f"{self.path}: the file has changed since it was opened")

    def __getstate__(self) -> dict[str, Any]:
        """Other machines that share the storage may count its inodes differently."""
        return {"path": self.path, "stamp": Stamp(self.stamp.size, self.stamp.modified)}


@dataclass(frozen=True)
class RemoteFile:
    """A file in other storage, as it was when it was opened first."""

    path: str
    stamp: Stamp

    @contextlib.contextmanager
    def opened(self) -> Iterator[Any]:
        """A handle of Arrow's; an error, at the latest in the end, if the file changes."""
        self._check()
        with Remote(self.path).open() as handle:
            yield handle
        self._check()

    def _check(self) -> None:
        if not self.stamp.matches(Stamp(*Remote(self.path).stamp())):
            raise FileError(f"{self.path}: the file has changed since it was opened")


@contextlib.contextmanager
def pinned(path: Path) -> Iterator[tuple[DataFile, IO[bytes]]]:
    """Open a file for the first time: what it is from now on, and a handle to read its header."""
    with open_regular(path) as handle:
        file = DataFile(str(path), _stamp(handle))
        if not file.stamp.size:
            raise ValueError(f"{path}: the file is empty")
        yield file, handle
        file.check(handle)


def pinned_remote(path: Remote) -> RemoteFile:
    """What a file in other storage is from now on."""
    file = RemoteFile(str(path), Stamp(*path.stamp()))
    if not file.stamp.size:
        raise ValueError(f"{path}: the file is empty")
    return file


def native_path(handle: IO[bytes], file: DataFile) -> str:
    """A path by which libraries that want one get the file behind a handle, whatever bears its name by now."""
    path = f"/dev/fd/{handle.fileno()}"
    return path if os.path.exists(path) else file.path  # a system without it: the check in the end must do


def _stamp(handle: IO[bytes]) -> Stamp:
    status = os.fstat(handle.fileno())
    return Stamp(status.st_size, status.st_mtime_ns, status.st_ino, status.st_ctime_ns)
