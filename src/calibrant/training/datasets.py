"""The data of a recipe: read, split, varied, and turned into pipelines."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from calibrant.base.checks import did_you_mean, listing
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
    with_wrong_labels,
)
from calibrant.training.components import make_colouring, make_steps
from calibrant.training.recipe import Recipe
from calibrant.training.settings import AlsoSettings, DataSettings, Role, TextSettings


@dataclass(frozen=True)
class DataSets:
    """Training, validation and test data, further sets to predict, and the names of sets without a path."""

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
        sets = {"val": self.val, "test": self.test} | self.also
        return {name: data for name, data in sets.items() if data is not None}


def load_sets(recipe: Recipe, path: str | None = None) -> DataSets:
    """Read the data of a recipe; ``path`` takes precedence over the recipe's."""
    settings = recipe.data

    def read_role(role: Role) -> Dataset:
        return read_split(recipe, path, getattr(settings, role), **settings.split_options.get(role, {}))

    train = read_role("train")
    if settings.test_share is None:
        test = align_classes(read_role("test"), train.classes, by_position=False)
    else:
        train, test = hold_out(train, fraction=settings.test_share)
    if settings.resample:
        train, test = resample(train, test, seed=recipe.seed)
    val = None
    if settings.val is not None and settings.val != settings.test:
        val = align_classes(read_role("val"), train.classes, by_position=False)
    if settings.hold_out is not None:
        if val is not None:
            raise ValueError("data.val and data.hold_out both name a validation set; one of them is enough")
        amount = settings.hold_out.model_dump(exclude_none=True, exclude={"of"})
        if settings.hold_out.of == "test":
            test, val = hold_out(test, **amount)
        else:
            train, val = hold_out(train, **amount)
    train = _limit(train, settings)
    disjoint(train, *([val] if val is not None else []), test)
    further = {n: AlsoSettings(variant=also) if isinstance(also, str) else also for n, also in settings.also.items()}
    left_out = tuple(name for name, also in further.items() if also.layout is not None and not also.path)
    also = {name: _read_also(recipe, path, part, test) for name, part in further.items() if name not in left_out}
    if settings.variant == "single-object":
        train = single_object(train) if "train" in settings.variant_of else train
        test = single_object(test) if "test" in settings.variant_of else test
        val = single_object(val) if val is not None and "val" in settings.variant_of else val
    if (noise := settings.label_noise) is not None:
        train = with_wrong_labels(train, noise.rate, kind=noise.kind, seed=noise.seed)
    sets = DataSets(train, val, test, also, left_out)
    return sets if settings.text is None else _encode_sets(sets, settings.text)


def _limit(train: Dataset, settings: DataSettings) -> Dataset:
    """Draw ``train_count`` training samples; all if the recipe sets no count."""
    count = settings.train_count
    if count is None or count == len(train):
        return train
    if count > len(train):
        raise ValueError(f"{train.title}: data.train_count is {count}, and {len(train)} samples are left to train on")
    seed = 0 if settings.hold_out is None else settings.hold_out.seed
    return hold_out(train, count=count, seed=seed)[1].replace(split=train.split)


#: Settings that act on images after they are read.
_AFTER_READING = {
    "steps",
    "train_steps",
    "colouring",
    "mean",
    "std",
    "padding",
    "resampling",
    "channels",
    "context_rate",
}


def have_same_data(first: Recipe, second: Recipe) -> bool:
    """Whether `load_sets` returns the same for two recipes."""
    first_data, second_data = (recipe.data.model_dump(exclude=_AFTER_READING) for recipe in (first, second))
    return first_data == second_data and (first.seed == second.seed or not first.data.resample)


def read_split(recipe: Recipe, path: str | None, split: str, layout: str | None = None, **options: Any) -> Dataset:
    """Read one split: of the recipe's data, or of another layout without the recipe's options."""
    settings = recipe.data
    source = path or settings.path
    readers = layouts()
    if not source and settings.layout in readers and not readers[settings.layout].splits(Path(settings.layout)):
        raise ValueError(f"the recipe does not say where its data ({settings.layout}) are: give --data DIR")
    source = source or settings.layout  # an embedded set
    if layout is not None and layout != settings.layout:
        return read(source, split or None, layout=layout, **options)
    return read(source, split, layout=settings.layout, **(settings.options | options))


def align_classes(dataset: Dataset, classes: tuple[str, ...], *, by_position: bool = True) -> Dataset:
    """The samples with their labels as positions in ``classes``, matched by name.

    With ``by_position``, class names that are whole numbers and not among the classes are positions: the folders of
    ImageNetV2 are called 0 to 999.
    """
    if dataset.classes == classes:
        return dataset
    indices = {name: index for index, name in enumerate(classes)}
    if by_position and all(name.isdecimal() for name in dataset.classes) and not set(dataset.classes) <= indices.keys():
        indices = {str(index): index for index in range(len(classes))}
    if dataset.masks is not None:
        raise ValueError(f"{dataset.title}: its masks have other classes than the trained model")
    if unknown := [name for name in dataset.classes if name not in indices]:
        raise ValueError(f"{dataset.title}: the class {unknown[0]!r} is not one of the {len(classes)} trained classes")
    table = np.array([indices[name] for name in dataset.classes], dtype=np.int64)
    labels = np.where(dataset.labels >= 0, table[dataset.labels], dataset.labels)
    boxes = dataset.boxes
    if boxes is not None:
        boxes = dataclasses.replace(boxes, labels=np.where(boxes.labels >= 0, table[boxes.labels], boxes.labels))
    return dataclasses.replace(dataset, classes=classes, labels=labels, boxes=boxes, soft=None)


def choose_set(recipe: Recipe, sets: DataSets, data: str | None, split: str | None, layout: str | None) -> Dataset:
    """The set to predict: one of the run's, or another split or layout with the classes of the training data."""
    dataset = None if layout else _set_of_run(recipe, sets, split)
    if dataset is None:
        dataset = align_classes(read_split(recipe, data, split or "", layout), sets.train.classes)
        if sets.vocabulary is not None and recipe.data.text is not None:
            dataset = encode_texts(dataset, sets.vocabulary, recipe.data.text)
    return dataset


def _set_of_run(recipe: Recipe, sets: DataSets, split: str | None) -> Dataset | None:
    """A set by its role in the run (val, test, a name in also), or by the name of a split that the run uses whole."""
    if split is None:
        return sets.test
    if split in sets.evaluated:
        if split == "val" == recipe.data.test and recipe.data.hold_out is not None:
            raise ValueError("'val' is both the data held out of this run and its test split; leave out --split for "
                             "the test data, or read another set with --layout")  # fmt: skip
        return sets.evaluated[split]
    is_whole = recipe.data.hold_out is None or recipe.data.hold_out.of == "train"
    return sets.test if split == recipe.data.test and is_whole and not recipe.data.resample else None


def index_of(ids: Sequence[str], image: str, title: str) -> int:
    """The position of an id, given whole, without its suffix, or by a unique ending.

    Example:
        >>> index_of(("test/a.png", "test/b.png"), "b", "camvid/test")
        1
    """
    if image in ids:
        return list(ids).index(image)
    ends = [k for k, name in enumerate(ids) if name.endswith(f"/{image}") or Path(name).stem == image]
    ends = ends or [k for k, name in enumerate(ids) if name.endswith(image)]
    if len(ends) == 1:
        return ends[0]
    if ends:
        raise ValueError(f"{title}: {len(ends)} images end with {image!r}: {listing([ids[k] for k in ends], 3)}")
    hint = did_you_mean(image, [Path(name).stem for name in ids]) or f"; there are {listing(list(ids), 3)}"
    raise ValueError(f"{title} has no image {image!r}{hint}")


def select_labelled(dataset: Dataset) -> Dataset:
    """The samples that have a class; all of them, if it has masks."""
    if dataset.masks is None and (dataset.labels < 0).any():
        dataset = dataset.take(dataset.labels >= 0)
    if len(dataset) == 0:
        raise ValueError(f"{dataset.title}: no samples with a class to predict")
    return dataset


def _read_also(recipe: Recipe, path: str | None, also: AlsoSettings, test: Dataset) -> Dataset:
    """Read a further set to predict: the test set or other data, unchanged or in a variant."""
    data = test
    if {"layout", "path", "split", "options"} & also.model_fields_set:
        split = also.split or ("" if also.layout else recipe.data.test)
        options = also.options if also.layout else recipe.data.split_options.get("test", {}) | also.options
        data = align_classes(read_split(recipe, also.path or path, split, also.layout, **options), test.classes)
    if also.variant is not None:
        data = context_only(data) if also.variant == "context-only" else single_object(data)
    if also.pool:  # shifted versions of the same images have the same ids
        data = test.merged(data.replace(ids=tuple(f"pooled/{name}" for name in data.ids)))
    return data


def _encode_sets(sets: DataSets, text: TextSettings) -> DataSets:
    """Encode texts as token ids, by a vocabulary of the training data."""
    if sets.train.kind != "text":
        raise ValueError(f"data.text is for data sets of texts, and {sets.train.title} is one of {sets.train.kind}s")
    words = Vocabulary.build((sample.input for sample in sets.train), size=text.vocabulary, min_count=text.min_count)
    train, test = (encode_texts(data, words, text) for data in (sets.train, sets.test))
    val = None if sets.val is None else encode_texts(sets.val, words, text)
    also = {name: encode_texts(data, words, text) for name, data in sets.also.items()}
    return DataSets(train, val, test, also, sets.left_out, words)


def encode_texts(dataset: Dataset, words: Vocabulary, text: TextSettings) -> Dataset:
    """Encode texts as token ids, by the settings of a recipe."""
    return encoded(dataset, words, text.length, side=text.side, unknown=text.unknown)


def training_pipeline(recipe: Recipe, train: Dataset, *, filled_up: bool = False) -> Pipeline:
    """The pipeline of the training data; ``filled_up`` for images of different sizes."""
    settings = recipe.data
    return Pipeline(
        train,
        make_steps(settings.train_steps or settings.steps),
        colouring=make_colouring(settings.colouring),
        seed=recipe.seed,
        context_rate=settings.context_rate,
        reading=recipe.targets.reading,
        filled_up=filled_up,
        **_rendering(settings),
    )


def evaluation_pipeline(recipe: Recipe, dataset: Dataset, *, filled_up: bool = False) -> Pipeline:
    """The pipeline of validation and prediction: samples with a class, or with ``filled_up`` images of any size."""
    samples = dataset if filled_up else select_labelled(dataset)
    return Pipeline(samples, make_steps(recipe.data.steps), filled_up=filled_up, **_rendering(recipe.data))


def _rendering(settings: DataSettings) -> dict[str, Any]:
    return {"padding": settings.padding, "resampling": settings.resampling, "channels": settings.channels}
