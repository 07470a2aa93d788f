"""The data of a recipe: read, split, varied, and turned into pipelines."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from calibrant.data import (
    ColourJitter,
    Dataset,
    Pipeline,
    Vocabulary,
    context_only,
    disjoint,
    encoded,
    hold_out,
    read,
    resample,
    single_object,
)
from calibrant.training.recipe import DataSettings, Recipe, chain


@dataclass(frozen=True)
class Sets:
    """Training, validation and test data, and what else is predicted at the end."""

    train: Dataset
    val: Dataset | None
    test: Dataset
    also: dict[str, Dataset]
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

    def one(split: str, **options: Any) -> Dataset:
        return read_split(recipe, path, split, **options)

    train, test = one(settings.train), one(settings.test)
    if settings.resample:
        train, test = resample(train, test, seed=recipe.seed)
    val = one(settings.val) if settings.val is not None and settings.val != settings.test else None
    if settings.hold_out is not None:
        if val is not None:
            raise ValueError("data.val and data.hold_out both name a validation set; one of them is enough.")
        train, val = hold_out(train, **settings.hold_out.model_dump(exclude_none=True))
    disjoint(train, *([val] if val is not None else []), test)
    also = {}
    for name, what in settings.also.items():
        also[name] = context_only(test) if what == "context-only" else one(settings.test, **what)
    if settings.variant == "single-object":
        train = single_object(train)
    sets = Sets(train, val, test, also)
    return sets if settings.text is None else _with_tokens(sets, settings)


def read_split(
    recipe: Recipe, path: str | None, split: str, vocabulary: Vocabulary | None = None, **options: Any
) -> Dataset:
    """One split of the recipe's data as it lies on disk."""
    settings = recipe.data
    where = path or settings.path or settings.layout
    data = read(where, split, layout=settings.layout, **(settings.options | options))
    if vocabulary is not None and settings.text is not None:
        return encoded(data, vocabulary, settings.text.length)
    return data


def _with_tokens(sets: Sets, settings: DataSettings) -> Sets:
    assert settings.text is not None
    text = settings.text
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
    colouring = ColourJitter(**settings.colouring) if settings.colouring else None
    return Pipeline(
        train,
        chain(settings.train_steps or settings.steps),
        colouring=colouring,
        seed=recipe.seed,
        context_rate=settings.context_rate,
        padding=settings.padding,
        reading=recipe.targets.reading,
    )
