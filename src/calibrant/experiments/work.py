"""One run of a comparison, wherever it is executed: trained, evaluated, or recorded as failed.

The folder of a run is named by the key of its recipe, and holds everything about it. What is finished is never done
again; what was cut off goes on from its last checkpoint; what failed says why.
"""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from calibrant._files import write_json
from calibrant.experiments.evaluation import numbers, read_numbers
from calibrant.models import TERMINATED
from calibrant.training import FAILED, RESULT, InUseError, Recipe, RunFolder, check_recipe, train

#: Errors that come again when a run is repeated; others (a killed process, a full disk) may not.
_LASTING = (ValueError, ArithmeticError, TypeError, KeyError)

#: Told how far a run is: steps done, steps in all.
Report = Callable[[int, int], None]

_REPORT_SECONDS = 0.5


@dataclass(frozen=True)
class Job:
    """A run that is to be done.

    Attributes:
        key: Of the recipe.
        recipe: As plain values, which any process can read.
        folder: Of the run.
        data: Where the data lies, if not where the recipe says.
        title: What a bar calls it.
        trust_code: Whether a model that is neither Calibrant's, torchvision's nor timm's may be imported.
    """

    key: str
    recipe: Mapping[str, Any]
    folder: str
    data: str | None
    title: str
    trust_code: bool = False

    @classmethod
    def of(cls, recipe: Recipe, runs: Path, data: str | None, title: str, trust_code: bool = False) -> Job:
        """The job of a recipe, in a folder of runs."""
        return cls(recipe.key, recipe.model_dump(mode="json"), str(runs / recipe.key), data, title, trust_code)

    @property
    def done(self) -> bool:
        """Whether its numbers are on disk, and whole."""
        finished, damage = self._outcome
        return finished and not damage

    @property
    def failure(self) -> dict[str, Any] | None:
        """Why it failed, if it did, and whether it would again: ``error`` and ``lasting``."""
        finished, damage = self._outcome
        if finished:  # what is damaged counts as finished for nobody, and is not computed over: the message says so
            return {"error": damage, "lasting": True} if damage else None
        place = RunFolder(self.folder)
        failed = place.failure()
        if failed is None and os.path.lexists(place / FAILED):
            return {"error": f"{place / FAILED}, which says why, is damaged", "lasting": False}
        return None if failed is None else failed.model_dump()

    @property
    def _outcome(self) -> tuple[bool, str]:
        """Whether the run has been finished, and what is damaged of its numbers."""
        place = RunFolder(self.folder)
        try:
            place.result()
            read_numbers(place)
        except (FileNotFoundError, NotADirectoryError):
            return False, ""
        except ValueError as error:
            return True, str(error)
        return True, ""

    def fail(self, error: str, *, lasting: bool) -> None:
        """Record why it failed."""
        record = {"error": error, "lasting": lasting, "time": round(time.time(), 3), "machine": platform.node()}
        write_json(Path(self.folder) / FAILED, record)


def perform(job: Job, threads: int, report: Report = lambda step, steps: None, accelerator: str = "auto") -> bool:
    """Do a job, in this process; whether it is done now. An error is recorded, not raised."""
    if threads:
        torch.set_num_threads(threads)
    begun: list[bool] = []
    try:
        _trained(job, report, accelerator, begun)
        numbers(job.folder)
    except (MemoryError, OSError) as error:
        job.fail(_sentence(error), lasting=False)
        return False
    except SystemExit as error:
        if error.code == TERMINATED:
            raise
        job.fail(f"the model's code ended the process with exit code {error.code}", lasting=True)
        return False
    except Exception as error:  # before the first step it is the data or the machine, which can be put right
        job.fail(_sentence(error), lasting=isinstance(error, _LASTING) and bool(begun))
        return False
    (Path(job.folder) / FAILED).unlink(missing_ok=True)
    return True


def _trained(job: Job, report: Report, accelerator: str, begun: list[bool]) -> None:
    recipe = check_recipe(dict(job.recipe), job.folder)
    steps, last = 0, 0.0

    def listen(event: str, found: Mapping[str, Any]) -> None:
        nonlocal steps, last
        if event == "start":
            steps = found["steps"]
            begun.append(True)
        if event in ("start", "step") and time.monotonic() - last > _REPORT_SECONDS:
            last = time.monotonic()
            report(found["step"], steps)

    def run() -> None:
        if not (Path(job.folder) / RESULT).exists():
            train(
                recipe, job.folder, data=job.data, resume=True, accelerator=accelerator, trust_code=job.trust_code,
                event_log=listen,
            )  # fmt: skip

    in_turn(run, lambda: report(0, 0))


def in_turn(run: Callable[[], object], waiting: Callable[[], None] = lambda: None) -> None:
    """Do something with a run's folder once nobody else does.

    Another command may do this run, or a process has yet to notice that its parent is gone.
    """
    while True:
        try:
            run()
            return
        except InUseError:
            waiting()
            time.sleep(_REPORT_SECONDS)


def _sentence(error: BaseException) -> str:
    words = " ".join(str(error).split()) or "no reason given"
    return words if isinstance(error, ValueError | ArithmeticError) else f"{type(error).__name__}: {words}"
