"""The folder of a comparison: looked at before anything in it is touched, and known by its study.json."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from calibrant._files import PART, check_output, json_value, remove_leftovers, write_json
from calibrant.experiments.study import Study
from calibrant.training import DamagedError, environment, read_record

RUNS, STUDY = "runs", "study.json"
FORMAT = "calibrant.study"


class _Known(BaseModel):
    """What a study.json of ours says, whatever else it has."""

    model_config = ConfigDict(extra="allow")

    format: Literal["calibrant.study"]


def look(folder: Path) -> bool:
    """Whether a folder is a comparison's already; raise unless it is that, or new. Nothing is changed."""
    check_output(folder, folder=True)
    try:
        names = sorted(os.listdir(folder))
    except FileNotFoundError:
        return False
    strangers = [name for name in names if not name.startswith(PART)]
    if STUDY in names:
        try:
            read_record(folder / STUDY, _Known, "name a new folder")
        except DamagedError as error:
            raise ValueError(f"{folder} holds no comparison: {error}") from None
    elif strangers:
        raise ValueError(f"{folder} holds no comparison, but {strangers[0]}; name a new folder")
    return STUDY in names


def claim(folder: Path, study: Study) -> None:
    """Make a folder that was looked at the comparison's."""
    write_json(folder / STUDY, json_value(_described(study)))
    remove_leftovers(folder)
    (folder / RUNS).mkdir(exist_ok=True)


def _described(study: Study) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "version": 1,
        "methods": {label: {"name": m.name, "settings": m.settings} for label, m in study.methods.items()},
        "seeds": list(study.seeds),
        "tune": list(study.tune),
        "search": study.search,
        "trials": study.trials,
        "recipe": study.recipe.model_dump(mode="json"),
        "environment": environment(),
    }
