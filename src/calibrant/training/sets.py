"""The data of a recipe: read, split, varied, and turned into pipelines."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from calibrant.data import (
    Dataset,
    Pipeline,
    Vocabulary,
    context_only,
    disjoint,
    encoded,
    hold_out,
    layouts,
    read,
    resample,
    single_object,
)
from calibrant.training.named import chain, make_colouring
from calibrant.training.predicting import labelled
from calibrant.training.recipe import Recipe
from calibrant.training.settings import AlsoSettings, DataSettings, Role


@dataclass(frozen=True)
class Sets:
    """Training, validation and test data, what else is predicted at the end, and what has no path to be read from."""

    train: Dataset
    val: Dataset | None
    test: Dataset
    also: dict[str, Dataset]
    left_out: tuple[str, ...] = ()
    vocabulary: Vocabulary | None = None

    @property
    def vocabulary_size(self) -> int | None:
        """Number of words, for data sets of texts."""
        return None if self.vocabulary is None else len(self.vocabulary.words)

    @property
    def evaluated(self) -> dict[str, Dataset]:
        """Every set that is predicted at the end, by name."""
        named = {"val": self.val, "test": self.test} | self.also
        return {name: data for name, data in named.items() if data is not None}


def load_sets(recipe: Recipe, path: str | None = None) -> Sets:
    """Read the data of a recipe; ``path`` goes before the recipe's own."""
    settings = recipe.data

    def part(role: Role) -> Dataset:
        return read_split(recipe, path, getattr(settings, role), **settings.split_options.get(role, {}))

    train = part("train")
    if settings.test_share is None:
        test = aligned(part("test"), train.classes, by_position=False)
    else:
        train, test = hold_out(train, fraction=settings.test_share)
    if settings.resample:
        train, test = resample(train, test, seed=recipe.seed)
    val = None
    if settings.val is not None and settings.val != settings.test:
        val = aligned(part("val"), train.classes, by_position=False)
    if settings.hold_out is not None:
        if val is not None:
            raise ValueError("data.val and data.hold_out both name a validation set; one of them is enough.")
        amount = settings.hold_out.model_dump(exclude_none=True, exclude={"of"})
        if settings.hold_out.of == "test":
            test, val = hold_out(test, **amount)
        else:
            train, val = hold_out(train, **amount)
    disjoint(train, *([val] if val is not None else []), test)
    also, left_out = {}, []
    for name, what in settings.also.items():
        wanted = AlsoSettings(variant=what) if isinstance(what, str) else what
        if wanted.layout is not None and not wanted.path:
            left_out.append(name)
        else:
            also[name] = _also(recipe, path, wanted, test)
    if settings.variant == "single-object":
        train, test = (
            single_object(d) if r in settings.variant_of else d for d, r in ((train, "train"), (test, "test"))
        )
        val = single_object(val) if val is not None and "val" in settings.variant_of else val
    sets = Sets(train, val, test, also, tuple(left_out))
    return sets if settings.text is None else _with_tokens(sets, settings)


def read_split(recipe: Recipe, path: str | None, split: str, layout: str | None = None, **options: Any) -> Dataset:
    """One split as it lies on disk: of the recipe's data, or of another layout with none of the recipe's options."""
    settings = recipe.data
    where = path or settings.path
    known = layouts()
    if not where and settings.layout in known and not known[settings.layout].splits(Path(settings.layout)):
        raise ValueError(f"the recipe does not say where its data ({settings.layout}) lies; --data DIR does.")
    where = where or settings.layout  # an embedded set
    if layout is not None and layout != settings.layout:
        return read(where, split or None, layout=layout, **options)
    return read(where, split, layout=settings.layout, **(settings.options | options))


def aligned(dataset: Dataset, classes: tuple[str, ...], *, by_position: bool = True) -> Dataset:
    """The same samples with labels in other classes' order, by name.

    With ``by_position``, names that are whole numbers and none of the classes' are positions: ImageNetV2 is such a data
    set, whose folders are called 0 to 999.
    """
    if dataset.classes == classes:
        return dataset
    place = {name: position for position, name in enumerate(classes)}
    numbers = by_position and all(name.isdecimal() for name in dataset.classes)
    if numbers and not set(dataset.classes) <= place.keys():
        place = {str(position): position for position in range(len(classes))}
    strange = [name for name in dataset.classes if name not in place]
    if dataset.masks is not None:
        raise ValueError(f"{dataset.title}: its masks name other classes than those that were trained.")
    if strange:
        raise ValueError(f"{dataset.title}: the class {strange[0]!r} is none of the {len(classes)} that were trained.")
    table = np.array([place[name] for name in dataset.classes], dtype=np.int64)
    labels = np.where(dataset.labels >= 0, table[dataset.labels], dataset.labels)
    boxes = dataset.boxes
    if boxes is not None and boxes.labels is not None:
        boxes = dataclasses.replace(boxes, labels=np.where(boxes.labels >= 0, table[boxes.labels], boxes.labels))
    return dataclasses.replace(dataset, classes=classes, labels=labels, boxes=boxes, soft=None)


def _also(recipe: Recipe, path: str | None, wanted: AlsoSettings, test: Dataset) -> Dataset:
    own = {"layout", "path", "split", "options"} & wanted.model_fields_set
    data = test
    if own:
        split = wanted.split or ("" if wanted.layout else recipe.data.test)
        options = wanted.options if wanted.layout else recipe.data.split_options.get("test", {}) | wanted.options
        data = aligned(read_split(recipe, wanted.path or path, split, wanted.layout, **options), test.classes)
    if wanted.variant is None:
        return data
    return context_only(data) if wanted.variant == "context-only" else single_object(data)


def _with_tokens(sets: Sets, settings: DataSettings) -> Sets:
    assert settings.text is not None
    text = settings.text
    if sets.train.kind != "text":
        raise ValueError(f"data.text is for data sets of texts, and {sets.train.title} is one of {sets.train.kind}s")
    words = Vocabulary.build((sample.input for sample in sets.train), size=text.vocabulary, min_count=text.min_count)
    rows = {f.name: getattr(sets, f.name) for f in dataclasses.fields(sets)}
    changed: dict[str, Any] = {
        name: encoded(data, words, text.length) for name, data in rows.items() if isinstance(data, Dataset)
    }
    changed["also"] = {name: encoded(data, words, text.length) for name, data in sets.also.items()}
    return dataclasses.replace(sets, vocabulary=words, **changed)


def training_pipeline(recipe: Recipe, train: Dataset) -> Pipeline:
    """Training data as the model takes it."""
    settings = recipe.data
    return Pipeline(
        train,
        chain(settings.train_steps or settings.steps),
        colouring=make_colouring(settings.colouring),
        seed=recipe.seed,
        context_rate=settings.context_rate,
        reading=recipe.targets.reading,
        **_rendering(settings),
    )


def evaluation_pipeline(recipe: Recipe, dataset: Dataset) -> Pipeline:
    """Data as the model takes it for validation and predictions."""
    return Pipeline(labelled(dataset), chain(recipe.data.steps), **_rendering(recipe.data))


def _rendering(settings: DataSettings) -> dict[str, Any]:
    return {"padding": settings.padding, "resampling": settings.resampling, "channels": settings.channels}
