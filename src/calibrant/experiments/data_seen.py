"""Which data the runs of a folder were trained on: the key of a run does not depend on where its data lies.

So that runs on other data are never taken for these, a folder keeps a checksum of what was read: ids and labels of all
samples, and the contents of a few.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pydantic import BaseModel, ConfigDict, RootModel

from calibrant.data import Dataset, layouts
from calibrant.experiments.study import Planned, Study
from calibrant.predictions import Predictions
from calibrant.training import Recipe, Sets, load_sets, make_fabric, prepare_run, read_record, rehearse

SEEN = "data.json"
_READ = 8  # samples whose contents count
_BYTES = 2**20  # of each


class _Seen(BaseModel):
    """What is kept of the data of some settings: where it lay, how many samples, and their checksums."""

    model_config = ConfigDict(extra="forbid")

    where: str
    samples: int
    checksum: str
    classes: str | None = None


class _Record(RootModel[dict[str, _Seen]]):
    """What `SEEN` holds, by the settings that decide which samples there are."""


def check_data(study: Study, folder: Path, data: str | None, trust_code: bool = False) -> dict[str, Any]:
    """Read the data once before anything runs; refuse others than the folder's runs were trained on.

    Model and loss of every method are tried on them, too.

    Args:
        study: What is compared.
        folder: Of the comparison.
        data: Where the data lies, if not where the recipe says.
        trust_code: Whether the recipe's model may be imported, whoever's it is.

    Returns:
        What the folder is to keep as `SEEN`.
    """
    records = _read(folder)
    runs = [study.final(label, study.candidates(label)[0], study.seeds[0], "") for label in study.methods]
    sets = _fitting_sets(runs, data, trust_code)
    if _embedded(study.recipe, data):
        return records
    kind, place = _kind(study.recipe), _place(study.recipe, data)
    before = records.get(kind)
    now = {"where": place, **_checksum(sets)}
    if before is not None:
        differing = [name for name in ("checksum", "classes") if before.get(name, now[name]) != now[name]]
        if differing:
            raise ValueError(
                f"{folder} holds runs on the data of {before['where']} ({before['samples']} samples), and those of "
                f"{place} ({now['samples']} samples) are others: give another folder."
            )
    return records | {kind: now}


def is_known(study: Study, folder: Path, data: str | None) -> bool:
    """Whether the folder's runs were trained on data from here; what lies here may have changed since."""
    place = _place(study.recipe, data)
    return _embedded(study.recipe, data) or _read(folder).get(_kind(study.recipe), {}).get("where") == place


def _read(folder: Path) -> dict[str, Any]:
    if not (folder / SEEN).exists():
        return {}
    advice = "delete it if the folder's runs are on the same data"
    return read_record(folder / SEEN, _Record, advice).model_dump(exclude_none=True)


def _place(recipe: Recipe, data: str | None) -> str:
    return str(Path(data or recipe.data.path or ".").absolute())


def check_tested(finals: list[Planned], runs: Path) -> None:
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


def _embedded(recipe: Recipe, data: str | None) -> bool:
    known = layouts()
    is_embedded = recipe.data.layout in known and bool(known[recipe.data.layout].splits(Path(recipe.data.layout)))
    return is_embedded and not (data or recipe.data.path)


def _kind(recipe: Recipe) -> str:
    """A name for the settings of a recipe that decide which samples there are."""
    named = ("layout", "options", "split_options", "train", "val", "test", "test_share", "variant", "variant_of",
             "text")  # fmt: skip
    plain = recipe.data.model_dump(mode="json", include=set(named))
    return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()[:16]


def _fitting_sets(runs: list[Planned], data: str | None, trust_code: bool) -> Sets:
    """The data, after a look at whether every method can be trained on them."""
    sets = load_sets(runs[0].recipe, data)
    with torch.random.fork_rng(devices=[]):
        for run in runs:
            fabric = make_fabric(run.recipe, "cpu", 1, 1)
            rehearse(prepare_run(run.recipe, fabric, sets, trust_code=trust_code))
    return sets


def _checksum(sets: Sets) -> dict[str, Any]:
    """Of all samples, however they are split."""
    parts = [part for part in (sets.train, sets.val, sets.test) if part is not None]
    rows = sorted((zlib.crc32(f"{name}\n{label}".encode()), place, i) for place, part in enumerate(parts)
                  for i, (name, label) in enumerate(zip(part.ids, part.labels.tolist(), strict=True)))  # fmt: skip
    digest = hashlib.sha256(np.array([row for row, _, _ in rows], np.uint32).tobytes())
    for _, place, i in rows[:_READ]:
        digest.update(_contents(parts[place], i))
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
