"""The folder of a run: recipe, environment, log, checkpoints, predictions, and a lock for one process at a time."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import platform
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from calibrant import __version__
from calibrant._files import written_aside
from calibrant.training.recipe import WORDS, Recipe, check

RECIPE, LOG, RESULT = "recipe.json", "log.jsonl", "result.json"
LOCK, FAILED = ".lock", "failed.json"
LAST, BEST, MODEL, MODEL_FACTS = "last.safetensors", "best.safetensors", "model.safetensors", "model.json"


# A process that reads for this one has the lock's file too, and would hold the lock for a while after its end.
_held: set[Any] = set()
os.register_at_fork(after_in_child=lambda: [handle.close() for handle in _held] and None)


class InUseError(ValueError):
    """Another process holds the folder."""


class RunFolder:
    """Where a run keeps what it knows; ``with folder.held():`` keeps others out.

    Example:
        >>> import tempfile
        >>> folder = RunFolder(Path(tempfile.mkdtemp()) / "run")
        >>> with folder.held():
        ...     folder.log({"step": 1, "loss": 0.5})
        >>> folder.entries()[0]["loss"]
        0.5
    """

    def __init__(self, path: str | Path):
        self.path = Path(path)

    def __truediv__(self, name: str) -> Path:
        return self.path / name

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Hold the folder; a second process is refused. The lock goes with the process, however it ends."""
        self.path.mkdir(parents=True, exist_ok=True)
        with open(self.path / LOCK, "a+") as handle:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                handle.seek(0)
                holder = handle.read().strip() or "another process"
                raise InUseError(f"{self.path} is in use by {holder}; wait for it, or name another folder.") from error
            handle.seek(0)
            handle.truncate()
            handle.write(f"process {os.getpid()} on {platform.node()}")
            handle.flush()
            _held.add(handle)
            for left in self.path.glob(".*.*"):  # what a process that was killed was writing
                left.unlink(missing_ok=True)
            try:
                yield
            finally:
                _held.discard(handle)
                if [p.name for p in self.path.iterdir()] == [LOCK]:  # nothing came of it
                    (self.path / LOCK).unlink()
                    self.path.rmdir()

    def check(self, recipe: Recipe, resume: bool) -> None:
        """See that the folder is new, or this recipe's and to be gone on with."""
        if not (self.path / RECIPE).exists():
            strangers = sorted(p.name for p in self.path.iterdir() if p.name not in (LOCK, FAILED))
            if strangers:
                raise ValueError(f"{self.path} holds no run, but {strangers[0]}; name a new folder.")
            return
        if not self._begun:  # it failed before its first checkpoint: there is nothing to lose
            return
        if not resume:
            raise ValueError(f"{self.path} holds a run already; --resume goes on with it, or name a new folder.")
        mine = self.recipe()
        if mine.key != recipe.key:
            differing = ", ".join(differences(mine, recipe)) or "its software"
            raise ValueError(f"{self.path} holds a run of another recipe ({differing} differ); name a new folder.")

    @property
    def _begun(self) -> bool:
        """Whether there is anything of a run that was computed."""
        return any((self.path / name).exists() for name in (LAST, BEST, RESULT))

    def claim(self, recipe: Recipe, data: str | None) -> None:
        """Make the folder this recipe's; where its data lies is kept, for what comes later."""
        if not self._begun:
            plain = recipe.model_dump(mode="json")
            if data is not None:
                plain["data"]["path"] = str(Path(data).absolute())
            self.write(RECIPE, plain)
            self.write("environment.json", environment())

    def recipe(self) -> Recipe:
        """The recipe of the run."""
        file = self.path / RECIPE
        try:
            return check(json.loads(file.read_text(encoding="utf-8")), str(file))
        except FileNotFoundError:
            raise ValueError(f"{self.path}: no run lies here ({RECIPE} is missing).") from None

    def write(self, name: str, value: Mapping[str, Any]) -> None:
        """A JSON file, whole or not at all."""
        with written_aside(self.path / name) as aside:
            aside.write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")

    def log(self, entry: Mapping[str, Any]) -> None:
        """One line of the log."""
        with open(self.path / LOG, "a", encoding="utf-8") as file:
            file.write(json.dumps({"time": round(time.time(), 3), **entry}) + "\n")

    def forget_after(self, step: int, epoch: int) -> None:
        """Take lines of later steps and epochs out of the log: the run goes on from here, and will write them again."""
        kept = [
            json.dumps(entry)
            for entry in self.entries()
            if entry.get("step", 0) <= step and not (entry.get("event") == "epoch" and entry["epoch"] > epoch)
        ]
        if (self.path / LOG).exists():
            with written_aside(self.path / LOG) as aside:
                aside.write_text("".join(f"{line}\n" for line in kept), encoding="utf-8")

    def entries(self) -> list[dict[str, Any]]:
        """The log; a last line that was cut off is left out."""
        file = self.path / LOG
        found = []
        for line in file.read_text(encoding="utf-8").splitlines() if file.exists() else ():
            with contextlib.suppress(ValueError):
                found.append(json.loads(line))
        return found


def differences(one: Recipe, other: Recipe) -> list[str]:
    """Names of the settings in which two recipes differ, as ``--set`` takes them."""
    first, second = (dict(_flat(recipe.model_dump(mode="json"))) for recipe in (one, other))
    names = [name for name in first | second if first.get(name) != second.get(name)]
    return [name for name in names if name.partition(".")[0] not in WORDS and name != "data.path"]


def _flat(plain: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in plain.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def environment() -> dict[str, Any]:
    """What a result may depend on besides its recipe."""
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
