"""The folder of a comparison: checked before anything in it is touched, and recognised by its study.json.

The key of a run does not depend on where its data lies. So that runs on other data are never mistaken for these,
data.json keeps a checksum of what was read: ids and labels of all samples, and the contents of a few.
"""

from __future__ import annotations

import hashlib
import json
import os
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from pydantic import BaseModel, ConfigDict, RootModel

from calibrant._files import PART, check_output, json_value, remove_leftovers, write_json
from calibrant.data import Dataset, layouts
from calibrant.experiments.plan.study import PlannedRun, Study
from calibrant.predictions import Predictions
from calibrant.training import (
    Classification,
    DamagedError,
    Recipe,
    Sets,
    environment,
    load_sets,
    make_fabric,
    prepare_run,
    read_record,
)

RUNS, STUDY, DATA = "runs", "study.json", "data.json"
FORMAT = "calibrant.study"

_READ = 8  # samples whose contents count
_BYTES = 2**20  # of each
#: Settings of a recipe that decide which samples there are.
_SAMPLES = {"layout", "options", "split_options", "train", "val", "test", "test_share", "variant", "variant_of", "text"}


class _StudyRecord(BaseModel):
    """What a study.json of ours says, whatever else it has."""

    model_config = ConfigDict(extra="allow")

    format: Literal["calibrant.study"]


class _DataRecord(BaseModel):
    """What is kept of the data of some settings: where it lay, how many samples, and their checksums."""

    model_config = ConfigDict(extra="forbid")

    where: str
    samples: int
    checksum: str
    classes: str | None = None


class _DataRecords(RootModel[dict[str, _DataRecord]]):
    """The contents of data.json, by the settings that decide which samples there are."""


def check_folder(folder: Path) -> bool:
    """Whether a folder is a comparison's already; raise unless it is that, or new. Nothing is changed."""
    check_output(folder, folder=True)
    try:
        names = sorted(os.listdir(folder))
    except FileNotFoundError:
        return False
    strangers = [name for name in names if not name.startswith(PART)]
    if STUDY in names:
        try:
            read_record(folder / STUDY, _StudyRecord, "name a new folder")
        except DamagedError as error:
            raise ValueError(f"{folder} is not the folder of a comparison: {error}") from None
    elif strangers:
        raise ValueError(f"{folder} is not the folder of a comparison: it holds {strangers[0]}; name a new folder")
    return STUDY in names


def claim(folder: Path, study: Study, data_record: Mapping[str, Any] | None = None) -> None:
    """Make a folder that was checked the comparison's, and keep what was recorded of its data."""
    description = {
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
    write_json(folder / STUDY, json_value(description))
    remove_leftovers(folder)
    (folder / RUNS).mkdir(exist_ok=True)
    if data_record is not None:
        write_json(folder / DATA, data_record)


def record_data(study: Study, folder: Path, data: str | None, trust_code: bool = False) -> dict[str, Any]:
    """Read the data once before anything runs, and try model and loss of every method on them.

    Args:
        study: What is compared.
        folder: The comparison's folder.
        data: Where the data lies, if not where the recipe says.
        trust_code: Whether the recipe's model may be imported, whoever's it is.

    Returns:
        What the folder is to keep as `DATA`.

    Raises:
        ValueError: The folder's runs were trained on other data.
    """
    records = _read_records(folder)
    where = _data_path(study.recipe, data)
    for kind, recipes in _by_samples(study).items():
        sets = load_sets(recipes[0], data)
        with torch.random.fork_rng(devices=[]):
            for recipe in recipes:
                run = prepare_run(
                    recipe, make_fabric(recipe, "cpu", 1, 1), sets, Classification(), trust_code=trust_code
                )
                run.task.rehearse(run)
        if _is_embedded(study.recipe, data):
            continue
        record = {"where": where, **_checksum(sets)}
        before = records.setdefault(kind, record)
        if any(before.get(name, record[name]) != record[name] for name in ("checksum", "classes")):
            raise ValueError(
                f"{folder} holds runs on the data of {before['where']} ({before['samples']} samples), and those of "
                f"{where} ({record['samples']} samples) are different: name another folder"
            )
        records[kind] = record
    return records


def _by_samples(study: Study) -> dict[str, list[Recipe]]:
    """The recipes of a study's methods, with the first settings and seed of each, by a key of the samples they read."""
    recipes: dict[str, list[Recipe]] = {}
    for label in study.methods:
        recipe = study.final(label, study.candidates(label)[0], study.seeds[0], "").recipe
        plain = recipe.data.model_dump(mode="json", include=_SAMPLES)
        key = hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()[:16]
        recipes.setdefault(key, []).append(recipe)
    return recipes


def has_data(study: Study, folder: Path, data: str | None) -> bool:
    """Whether the folder's runs were trained on data from here; what lies here may have changed since."""
    if _is_embedded(study.recipe, data):
        return True
    records, where = _read_records(folder), _data_path(study.recipe, data)
    return all(records.get(kind, {}).get("where") == where for kind in _by_samples(study))


def check_tested(finals: list[PlannedRun], runs: Path) -> None:
    """Raise if runs of one seed were tested on different samples or labels: their numbers do not compare."""
    first: dict[int, tuple[str, bytes]] = {}
    for run in finals:
        file = runs / run.key / "test.npz"
        predictions = Predictions.open(file)
        digest = hashlib.sha256(repr(predictions.class_names).encode("utf-8", "backslashreplace"))
        digest.update(np.ascontiguousarray(predictions.labels).tobytes())
        if predictions.ids is not None:
            digest.update("\n".join(map(str, predictions.ids.tolist())).encode("utf-8", "backslashreplace"))
        other, before = first.setdefault(run.seed, (str(file), digest.digest()))
        if before != digest.digest():
            raise ValueError(
                f"{file} and {other} have different samples, labels or classes: methods are compared on the same ones"
            )


def _read_records(folder: Path) -> dict[str, Any]:
    if not (folder / DATA).exists():
        return {}
    advice = "delete it if the folder's runs are on the same data"
    return read_record(folder / DATA, _DataRecords, advice).model_dump(exclude_none=True)


def _data_path(recipe: Recipe, data: str | None) -> str:
    return str(Path(data or recipe.data.path or ".").absolute())


def _is_embedded(recipe: Recipe, data: str | None) -> bool:
    layout, readers = recipe.data.layout, layouts()
    is_embedded = layout in readers and bool(readers[layout].splits(Path(layout)))
    return is_embedded and not (data or recipe.data.path)


def _checksum(sets: Sets) -> dict[str, Any]:
    """Of all samples, however they are split."""
    parts = [part for part in (sets.train, sets.val, sets.test) if part is not None]
    rows = sorted((zlib.crc32(f"{name}\n{label}".encode()), n, i) for n, part in enumerate(parts)
                  for i, (name, label) in enumerate(zip(part.ids, part.labels.tolist(), strict=True)))  # fmt: skip
    digest = hashlib.sha256(np.array([row for row, _, _ in rows], np.uint32).tobytes())
    for _, n, i in rows[:_READ]:
        digest.update(_contents(parts[n], i))
    classes = hashlib.sha256("\n".join(sets.train.classes).encode("utf-8", "backslashreplace")).hexdigest()[:16]
    return {"samples": len(rows), "checksum": digest.hexdigest()[:16], "classes": classes}


def _contents(part: Dataset, index: int) -> bytes:
    """Of an image: as it lies on disk, since libraries differ in how they decode it. Texts are known by their ids."""
    if part.kind != "image":
        return b""
    path = Path(part.inputs.where(index))
    if path.is_file():
        with path.open("rb") as file:
            return file.read(_BYTES)
    return np.asarray(part.inputs[index]).tobytes()
