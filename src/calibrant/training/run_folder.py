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
from calibrant.files import written_aside
from calibrant.training.recipe import Recipe, check

RECIPE, LOG, RESULT = "recipe.json", "log.jsonl", "result.json"
LAST, BEST, MODEL, MODEL_FACTS = "last.safetensors", "best.safetensors", "model.safetensors", "model.json"


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
        with open(self.path / ".lock", "a+") as handle:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                handle.seek(0)
                holder = handle.read().strip() or "another process"
                raise ValueError(f"{self.path} is in use by {holder}; wait for it, or name another folder.") from error
            handle.seek(0)
            handle.truncate()
            handle.write(f"process {os.getpid()} on {platform.node()}")
            handle.flush()
            yield

    def claim(self, recipe: Recipe, resume: bool) -> None:
        """Make the folder this recipe's, or see that it is."""
        file = self.path / RECIPE
        if not file.exists():
            strangers = [p.name for p in self.path.iterdir() if p.name != ".lock"] if self.path.exists() else []
            if strangers:
                raise ValueError(f"{self.path} holds no run, but {strangers[0]}; name a new folder.")
            self.write(RECIPE, recipe.model_dump(mode="json"))
            self.write("environment.json", environment())
            return
        if not resume:
            raise ValueError(f"{self.path} holds a run already; --resume goes on with it, or name a new folder.")
        if self.recipe().key != recipe.key:
            raise ValueError(f"{self.path} holds a run of another recipe; name a new folder.")

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

    def forget_after(self, step: int) -> None:
        """Take lines of later steps out of the log: the run goes on from this step, and will write them again."""
        kept = [json.dumps(entry) for entry in self.entries() if entry.get("step", 0) <= step]
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
