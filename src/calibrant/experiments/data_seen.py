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

from calibrant._files import written_aside
from calibrant.data import Dataset, layouts
from calibrant.experiments.study import Planned, Study
from calibrant.training.preparing import fitting
from calibrant.training.recipe import Recipe
from calibrant.training.sets import Sets, load_sets

SEEN = "data.json"
_READ = 8  # samples whose contents count
_BYTES = 2**20  # of each


def check_data(study: Study, folder: Path, data: str | None) -> None:
    """Read the data once before anything runs; refuse others than the folder's runs were trained on.

    Args:
        study: What is compared.
        folder: Of the comparison.
        data: Where the data lies, if not where the recipe says.
    """
    where = data or study.recipe.data.path
    if not where and _embedded(study.recipe):
        return
    file = folder / SEEN
    seen = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    kind, place = _kind(study.recipe), str(Path(where or ".").absolute())
    known = seen.get(kind)
    if known is not None and known["where"] == place:
        return
    runs = [study.final(label, study.candidates(label)[0], study.seeds[0], "") for label in study.methods]
    found = {"where": place, **_checksum(_fitting_sets(runs, data))}
    if known is not None and known["checksum"] != found["checksum"]:
        raise ValueError(
            f"{folder} holds runs on the data of {known['where']} ({known['samples']} samples), and those of {place} "
            f"({found['samples']} samples) are others: give another folder."
        )
    with written_aside(file) as aside:
        aside.write_text(json.dumps(seen | {kind: found}, indent=1) + "\n", encoding="utf-8")


def _embedded(recipe: Recipe) -> bool:
    known = layouts()
    return recipe.data.layout in known and bool(known[recipe.data.layout].splits(Path(recipe.data.layout)))


def _kind(recipe: Recipe) -> str:
    """A name for the settings of a recipe that decide which samples there are."""
    named = ("layout", "options", "split_options", "train", "val", "test", "test_share", "variant", "variant_of",
             "text")  # fmt: skip
    plain = recipe.data.model_dump(mode="json", include=set(named))
    return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()[:16]


def _fitting_sets(runs: list[Planned], data: str | None) -> Sets:
    """The data, after a look at whether every method can be trained on them."""
    sets = load_sets(runs[0].recipe, data)
    for run in runs:
        fitting(run.recipe, sets)
    return sets


def _checksum(sets: Sets) -> dict[str, Any]:
    """Of all samples, however they are split."""
    parts = [part for part in (sets.train, sets.val, sets.test) if part is not None]
    rows = sorted((zlib.crc32(f"{name}\n{label}".encode()), place, i) for place, part in enumerate(parts)
                  for i, (name, label) in enumerate(zip(part.ids, part.labels.tolist(), strict=True)))  # fmt: skip
    found = hashlib.sha256(np.array([row for row, _, _ in rows], np.uint32).tobytes())
    for _, place, i in rows[:_READ]:
        found.update(_contents(parts[place], i))
    return {"samples": len(rows), "checksum": found.hexdigest()[:16]}


def _contents(part: Dataset, index: int) -> bytes:
    """Of an image: as it lies on disk, since libraries differ in how they decode it. Texts are known by their ids."""
    if part.kind != "image":
        return b""
    path = Path(part.inputs.where(index))
    if path.is_file():
        with path.open("rb") as file:
            return file.read(_BYTES)
    return np.asarray(part.inputs[index]).tobytes()
