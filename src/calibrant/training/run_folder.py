"""The folder of a run: recipe, environment, log, checkpoints, predictions, and a lock for one process at a time.

A folder is checked before anything in it is changed; one that holds something else is refused. Nothing is written
through a link.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import platform
import stat
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np
import torch

from calibrant import __version__
from calibrant.base.files import (
    PART,
    check_output,
    json_value,
    nulls_as_nan,
    open_regular,
    remove_leftovers,
    write_json,
    written_aside,
)
from calibrant.training.recipe import Recipe, differences, load_copy
from calibrant.training.records import (
    DamagedError,
    Entry,
    Failed,
    ModelFacts,
    Result,
    check_record,
    parse_values,
    read_record,
    with_checksum,
)

RECIPE, LOG, RESULT = "recipe.json", "log.jsonl", "result.json"
LOCK, FAILED = ".calibrant-lock", "failed.json"
LAST, BEST, MODEL, MODEL_FACTS = "last.safetensors", "best.safetensors", "model.safetensors", "model.json"

#: Metrics that every set of a finished run has.
ALWAYS = ("accuracy", "nll", "ece", "aurc", "mean_confidence")
ALWAYS_DETECTED = ("ap", "ap50", "ar100")
#: File endings, after the name of a set, of its predictions, of their trust by the output for abstaining, and of its
#: detections.
PREDICTIONS, ABSTENTION, DETECTIONS = ".npz", "-abstention.npz", "-detections.json"

_HOLDER = "process "  # how the text of a lock begins
_LONGEST_LINE = 2**20
_AGAIN = "delete it, and train --resume or the same compare computes it again"

# Data-loading processes inherit the lock file, and would hold the lock for a while after this process ends.
_locks: set[Any] = set()
os.register_at_fork(after_in_child=lambda: [handle.close() for handle in _locks] and None)


class InUseError(ValueError):
    """Another process has locked the folder."""


class RunFolder:
    """The files of a run; ``with folder.lock():`` keeps other processes out.

    Example:
        >>> import tempfile
        >>> folder = RunFolder(Path(tempfile.mkdtemp()) / "run")
        >>> with folder.lock():
        ...     folder.log({"step": 1, "loss": 0.5})
        >>> folder.entries()[0]["loss"]
        0.5
    """

    def __init__(self, path: str | Path):
        self.path = Path(path)
        self.is_locked = False  # by this object

    def __truediv__(self, name: str) -> Path:
        return self.path / name

    @property
    def is_new(self) -> bool:
        """Whether the folder does not exist, or is empty."""
        try:
            with os.scandir(self.path) as entries:
                return next(entries, None) is None
        except FileNotFoundError:
            return True

    def check_run(self) -> None:
        """Raise unless the folder is new or holds a run; nothing is changed, not even a time stamp."""
        check_output(self.path, folder=True)
        if self.is_new:
            return
        if os.path.lexists(self / RECIPE):
            try:
                self.recipe()
            except ValueError as error:
                raise ValueError(f"{self.path} is not a run folder ({error}); name a new folder") from None
            return
        names = sorted(os.listdir(self.path))
        foreign = [name for name in names if name not in (LOCK, FAILED) and not name.startswith(PART)]
        if FAILED in names and self.failure() is None:
            foreign.append(FAILED)
        if LOCK in names and not _is_lock(self / LOCK):
            foreign.append(LOCK)
        if foreign:
            raise ValueError(f"{self.path} is not a run folder: it holds {foreign[0]}; name a new folder")

    def check(self, recipe: Recipe, resume: bool) -> None:
        """Raise unless the folder is new, or holds a run of this recipe to resume; nothing is changed."""
        self.check_run()
        if not self._has_begun:  # new, or failed before its first checkpoint: there is nothing to lose
            return
        if not resume:
            raise ValueError(f"{self.path} holds a run already; continue it with --resume, or name a new folder")
        stored = self.recipe()
        if stored.key != recipe.key:
            names = ", ".join(differences(stored, recipe)) or "its software"
            raise ValueError(f"{self.path} holds a run of another recipe ({names} differ); name a new folder")

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Lock the folder; a second process is refused. The lock is released however the process ends."""
        self.check_run()
        created = [folder for folder in (self.path, *self.path.parents) if not folder.exists()]
        self.path.mkdir(parents=True, exist_ok=True)
        with _open_lock(self / LOCK) as handle:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                raise self._in_use_error(handle.read(200).strip() or "another process") from error
            if not _is_same_file(handle, self / LOCK):  # the process that held it has removed it
                raise self._in_use_error("another process")
            handle.truncate(0)
            handle.write(f"{_HOLDER}{os.getpid()} on {platform.node()}")
            handle.flush()
            _locks.add(handle)
            self.is_locked = True
            remove_leftovers(self.path)
            try:
                yield
            finally:
                self.is_locked = False
                _locks.discard(handle)
                if os.listdir(self.path) == [LOCK]:  # nothing was written
                    (self / LOCK).unlink()
                    with contextlib.suppress(OSError):  # another process may use it by now
                        for folder in created:
                            folder.rmdir()

    def _in_use_error(self, owner: str) -> InUseError:
        return InUseError(f"{self.path} is in use by {owner}; wait for it, or name another folder")

    @property
    def _has_begun(self) -> bool:
        """Whether there is a checkpoint or a result."""
        return any((self.path / name).exists() for name in (LAST, BEST, RESULT))

    def claim(self, recipe: Recipe, data: str | None) -> None:
        """Write the recipe, with the path of its data, and the environment, unless the run has begun."""
        if not self._has_begun:
            plain = recipe.model_dump(mode="json")
            if data is not None:
                plain["data"]["path"] = str(Path(data).absolute())
            self.write(RECIPE, plain)
            self.write("environment.json", environment())

    def recipe(self) -> Recipe:
        """The recipe of the run."""
        if not os.path.lexists(self / RECIPE):
            raise ValueError(f"{self.path}: not a run folder ({RECIPE} is missing)")
        return load_copy(self / RECIPE)

    def result(self, recipe: Recipe | None = None) -> dict[str, Any]:
        """The metrics of a finished run: ``{"sets": ..., "steps": ..., "history": ...}``; checked by a recipe."""
        result = read_record(self / RESULT, Result, _AGAIN)
        if recipe is not None:
            _check_complete(self, result, recipe)
        plain = result.model_dump()
        return plain | {"sets": nulls_as_nan(plain["sets"]), "history": nulls_as_nan(plain["history"])}

    def model_facts(self) -> ModelFacts:
        """The inputs and classes of the model of a finished run."""
        try:
            return read_record(
                self / MODEL_FACTS, ModelFacts, f"delete {RESULT}, and train --resume computes both again"
            )
        except FileNotFoundError:
            raise ValueError(f"{self.path}: there is no {MODEL_FACTS}; the run is not finished") from None

    def failure(self) -> Failed | None:
        """Why the run failed, if that was recorded."""
        with contextlib.suppress(FileNotFoundError, DamagedError):
            return read_record(self / FAILED, Failed, "delete it")
        return None

    def write(self, name: str, value: Mapping[str, Any]) -> None:
        """Write a JSON file atomically; results and model facts get a checksum."""
        plain = json_value(value)
        write_json(self.path / name, with_checksum(plain) if name in (RESULT, MODEL_FACTS) else plain)

    def log(self, entry: Mapping[str, Any]) -> None:
        """Append a line to the log."""
        line = json.dumps(json_value({"time": round(time.time(), 3), **entry}))
        handle = os.open(self / LOG, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)
        with os.fdopen(handle, "a", encoding="utf-8") as file:
            file.write(f"{line}\n")

    def forget_after(self, step: int, epoch: int) -> None:
        """Remove later steps and epochs from the log: the resumed run will write them again."""
        if not os.path.lexists(self / LOG):
            return
        lines = [
            json.dumps(json_value(entry))
            for entry in self.entries()
            if entry.get("step", 0) <= step and not (entry.get("event") == "epoch" and entry.get("epoch", 0) > epoch)
        ]
        with written_aside(self.path / LOG) as aside:
            aside.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")

    def entries(self) -> list[dict[str, Any]]:
        """The log, without damaged or incomplete lines."""
        entries: list[dict[str, Any]] = []
        if not os.path.lexists(self / LOG):
            return entries
        with open_regular(self / LOG) as file:
            while line := file.readline(_LONGEST_LINE):
                with contextlib.suppress(ValueError):
                    entry = parse_values(line)
                    check_record(entry, Entry)
                    entries.append(entry)
        return entries


def _open_lock(path: Path) -> IO[str]:
    """Open or create the lock file; a file that is not a lock is refused."""
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK, 0o666)
    except OSError as error:
        if os.path.islink(path):
            raise ValueError(f"{path} is a link, and cannot be the lock of a run; name a new folder") from None
        raise error
    file = os.fdopen(handle, "r+", encoding="utf-8", errors="replace")
    if not _is_lock(path):
        file.close()
        raise ValueError(f"{path} is not the lock of a run; name a new folder")
    file.seek(0)
    return file


def _is_same_file(file: IO[str], path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file.fileno()), os.lstat(path))
    except FileNotFoundError:
        return False


def _is_lock(path: Path) -> bool:
    """Whether a file is a lock of ours: regular, with one name, and empty or with our text."""
    about = os.lstat(path)
    if not stat.S_ISREG(about.st_mode) or about.st_nlink > 1:
        return False
    with open_regular(path) as file:
        return file.read(len(_HOLDER)) in (b"", _HOLDER.encode())


def _check_complete(folder: RunFolder, result: Result, recipe: Recipe) -> None:
    """Raise unless the result of a finished run is complete and matches the recipe."""
    names = {"test", *recipe.data.also}
    if recipe.data.val is not None or recipe.data.hold_out is not None:
        names.add("val")
    lengths = [length for length in (recipe.training.steps, recipe.training.max_steps) if length is not None]
    detects = recipe.detection is not None
    problem, suffix = "", DETECTIONS if detects else PREDICTIONS
    metrics: tuple[str, ...] = ALWAYS_DETECTED if detects else ALWAYS
    for name, values in result.sets.items():
        if name not in names:
            problem = f"its recipe has no set {name!r}"
        elif absent := [metric for metric in metrics if metric not in values]:
            problem = f"the set {name!r} has no {absent[0]}"
        elif not (folder / f"{name}{suffix}").is_file():
            problem = f"{name}{suffix} is missing"
    if recipe.training.steps is not None and result.steps != min(lengths):
        problem = f"its recipe has {min(lengths)} steps, not {result.steps}"
    if [entry["epoch"] for entry in result.history] != list(range(1, len(result.history) + 1)):
        problem = "epochs are missing from its history"
    elif not result.history or result.history[-1]["step"] != result.steps:
        problem = "its history does not end with its last step"
    if problem:
        raise DamagedError(f"{folder / RESULT} is damaged ({problem}); {_AGAIN}")


def environment() -> dict[str, Any]:
    """The software and hardware that a result may depend on."""
    return {
        "calibrant": __version__,
        "torch": torch.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
        "machine": platform.machine(),
        "threads": torch.get_num_threads(),
        "cuda": torch.version.cuda,
        "devices": [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())],
    }
