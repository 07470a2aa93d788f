"""Recipes: everything that a training run depends on, in one TOML file, checked before anything starts.

An unknown key, a wrong type or a value out of range is one sentence that names the key and the nearest known one.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, Literal, Self, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from calibrant.data import (
    RICAP,
    CentreCrop,
    ColourJitter,
    CutMix,
    Cutout,
    Mixup,
    Pad,
    RandomCrop,
    RandomErasing,
    RandomFlip,
    RandomResizedCrop,
    Resize,
)
from calibrant.data.views import Step
from calibrant.losses import Loss, describe, get, names
from calibrant.training.optimisers import OptimiserSettings
from calibrant.training.schedules import Schedule

#: What the best epoch can be chosen by: what validation gives and has a better end.
BEST_BY = ("accuracy", "nll", "brier", "ece", "ece_10", "ece_15", "ece_100", "aece", "mce", "smooth_ece", "aurc",
           "e_aurc", "augrc", "overconfidence", "underconfidence", "mean_iou")  # fmt: skip

#: Parts of a recipe on which no run depends.
WORDS = {"title", "paper", "table", "notes", "expected", "search", "resources"}

#: The parts that a data set has in a run.
Role = Literal["train", "val", "test"]

STEPS: dict[str, Any] = {
    "resize": Resize,
    "pad": Pad,
    "centre_crop": CentreCrop,
    "random_crop": RandomCrop,
    "random_resized_crop": RandomResizedCrop,
    "flip": RandomFlip,
}
MIXING: dict[str, Any] = {"cutmix": CutMix, "ricap": RICAP, "mixup": Mixup}
BLANKING: dict[str, Any] = {"cutout": Cutout, "erasing": RandomErasing}


class Settings(BaseModel):
    """A part of a recipe: frozen, and nothing in it is unknown."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Named(BaseModel):
    """A thing by name, with whatever parameters it takes: ``{name = "acls", margin = 6}``."""

    model_config = ConfigDict(extra="allow", frozen=True)

    name: str

    @property
    def parameters(self) -> dict[str, Any]:
        """Everything but the name."""
        return dict(self.model_extra or {})

    def built(self, table: dict[str, Any], what: str) -> Any:
        """What a table has under this name, made with these parameters."""
        if self.name not in table:
            raise ValueError(f"unknown {what} {self.name!r}; known are {', '.join(table)}{_nearest(self.name, table)}")
        try:
            return table[self.name](**self.parameters)
        except TypeError as error:
            raise ValueError(f"{what} {self.name!r}: {error}") from error


class HoldOut(Settings):
    """What is split off for validation: a fraction, a count or a count of every class, of the training or test data."""

    of: Literal["train", "test"] = "train"
    fraction: Annotated[float, Field(gt=0, lt=1)] | None = None
    count: Annotated[int, Field(gt=0)] | None = None
    per_class: Annotated[int, Field(gt=0)] | None = None
    seed: int = 0

    @model_validator(mode="after")
    def _one(self) -> Self:
        if sum(v is not None for v in (self.fraction, self.count, self.per_class)) != 1:
            raise ValueError("takes one of fraction, count and per_class")
        return self


class TextSettings(Settings):
    """How texts become rows of token ids; ``vectors`` is a file of word vectors in GloVe's format."""

    vocabulary: Annotated[int, Field(gt=2)] = 20_000
    length: Annotated[int, Field(gt=0)] = 1000
    min_count: Annotated[int, Field(gt=0)] = 1
    vectors: str | None = None
    dimensions: Annotated[int, Field(gt=0)] = 100


class AlsoSettings(Settings):
    """One more set that is predicted at the end.

    Attributes:
        layout, path: Its own, if it does not lie with the rest; without a path it is left out of the run.
        split: Its name; the test split's if left out.
        options: Of its reader, on top of those of the test split unless the layout is another.
        variant: ``"context-only"``: every object covered; ``"single-object"``: one sample per annotated object.
    """

    layout: str | None = None
    path: str = ""
    split: str | None = None
    options: dict[str, Any] = {}
    variant: Literal["context-only", "single-object"] | None = None


class DataSettings(Settings):
    """Which data, and what is done to it.

    Attributes:
        layout: As `calibrant data layouts` lists them.
        path: The folder; ``--data`` on the command line replaces it.
        options: Of the layout's reader, for every split.
        split_options: More of them for one of the three: ``{train = {cap = 50000}}``.
        train, val, test: Names of the splits; without ``val``, ``hold_out`` makes one.
        test_share: Cut the test set from the training split, the same one for every seed; for data that come as one.
        hold_out: Split off ``train`` or ``test``.
        resample: Merge train and test and draw them anew for every seed (LR).
        variant: ``"single-object"``: one sample per annotated object.
        variant_of: Which of train, val and test it is made of.
        context_rate: Share of the images shown with every object covered.
        train_steps, steps: Views for training and for evaluation.
        resampling: How images are scaled.
        padding: Colour of padding, or ``"edge"`` for the nearest pixel.
        colouring: ``{brightness = 0.4, ...}``.
        blanking: Cutout or random erasing, on training batches.
        channels: 3, or 1 for grey.
        mean, std: Of the channels: one each, or one for all.
        text: For data sets of texts.
        also: More sets to predict at the end, by name; ``"context-only"`` is the test set with every object covered.
        pixels: How many labelled pixels of every image are written to the files of predictions, drawn at random;
            all if left out. The numbers of a run are of all pixels.
    """

    layout: str
    path: str = ""
    options: dict[str, Any] = {}
    split_options: dict[Role, dict[str, Any]] = {}
    train: str = "train"
    val: str | None = None
    test: str = "test"
    test_share: Annotated[float, Field(gt=0, lt=1)] | None = None
    hold_out: HoldOut | None = None
    resample: bool = False
    variant: Literal["single-object"] | None = None
    variant_of: tuple[Role, ...] = ("train",)
    context_rate: Annotated[float, Field(ge=0, le=1)] = 0.0
    train_steps: tuple[dict[str, Any], ...] = ()
    steps: tuple[dict[str, Any], ...] = ()
    resampling: Literal["bilinear", "bicubic"] = "bilinear"
    padding: Annotated[int, Field(ge=0, le=255)] | Literal["edge"] = 0
    colouring: dict[str, float] = {}
    blanking: Named | None = None
    channels: Literal[1, 3] = 3
    mean: tuple[float, ...] = (0.5,)
    std: tuple[Annotated[float, Field(gt=0)], ...] = (0.25,)
    text: TextSettings | None = None
    also: dict[str, Literal["context-only"] | AlsoSettings] = {}
    pixels: Annotated[int, Field(gt=0)] | None = None

    @model_validator(mode="after")
    def _buildable(self) -> Self:
        taken = {"train", "val", "test"} & self.also.keys()
        if taken:
            raise ValueError(f"also names {taken.pop()!r}, which every run has; choose another name")
        chain(self.train_steps)
        chain(self.steps)
        if self.colouring:
            ColourJitter(**self.colouring)
        if self.blanking is not None:
            self.blanking.built(BLANKING, "blanking")
        for name in ("mean", "std"):
            if len(getattr(self, name)) not in (1, self.channels):
                raise ValueError(f"{name} has {len(getattr(self, name))} values for {self.channels} channels")
        return self

    @property
    def normalisation(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Mean and standard deviation of every channel."""
        mean, std = (v * self.channels if len(v) == 1 else v for v in (self.mean, self.std))
        return mean, std


class ModelSettings(BaseModel):
    """The network, as `calibrant.models.build` takes it; what is not named here is an option of its builder."""

    model_config = ConfigDict(extra="allow", frozen=True)

    name: str
    stem: str | None = None
    weights: str | None = None
    head: Literal["keep", "drop"] = "keep"


class TargetSettings(Settings):
    """What a sample is trained towards before the loss sees it: its label, or ALS's target."""

    name: Literal["hard", "adaptive"] = "hard"
    beta: Annotated[float, Field(ge=0, le=1)] = 1.0
    reading: Literal["union", "single"] = "union"
    object_aware_mixing: bool = False


class TrainingSettings(Settings):
    """How long, how large, how precise.

    Attributes:
        epochs: Passes over the training data; 1 if neither epochs nor steps are given.
        steps: Length of the run in steps, instead of epochs.
        max_steps: Stop after so many steps of a longer run; its schedule stays.
        batch_size: Of all processes together.
        accumulate: Parts in which a batch goes through the model.
        precision: As Lightning Fabric names them; validation and predictions are in full precision.
        channels_last: Memory format of images and weights.
        compile: Pass the model to torch.compile.
        workers: Processes that read; 0 reads in between.
        drop_last: Leave out the last batch of an epoch if it is not full.
        keep: The model of the last epoch, or the one that did best on the validation data.
        best_by: In which metric.
        checkpoint_seconds: Between checkpoints within an epoch.
        eval_batch_size: Batch size of validation and predictions.
        tensorboard: Write a log for TensorBoard too.
    """

    epochs: Annotated[float, Field(gt=0)] | None = None
    steps: Annotated[int, Field(gt=0)] | None = None
    max_steps: Annotated[int, Field(gt=0)] | None = None
    batch_size: Annotated[int, Field(gt=0)] = 128
    accumulate: Annotated[int, Field(gt=0)] = 1
    precision: Literal["32-true", "bf16-mixed", "16-mixed", "64-true"] = "32-true"
    channels_last: bool = False
    compile: bool = False
    workers: Annotated[int, Field(ge=0)] = 0
    drop_last: bool = True
    keep: Literal["last", "best"] = "last"
    best_by: str = "accuracy"
    checkpoint_seconds: Annotated[float, Field(gt=0)] = 60.0
    eval_batch_size: Annotated[int, Field(gt=0)] = 256
    tensorboard: bool = False

    @model_validator(mode="after")
    def _one_length(self) -> Self:
        if self.steps is not None and self.epochs is not None:
            raise ValueError("takes epochs or steps, not both")
        if self.best_by not in BEST_BY:
            near = _nearest(self.best_by, BEST_BY)
            raise ValueError(f"best_by takes one of {', '.join(BEST_BY)}, not {self.best_by!r}{near}")
        return self


class Expected(Settings):
    """Numbers that a paper prints for this experiment, to be laid beside ours."""

    method: str
    where: str = "test"
    values: dict[str, float]
    note: str = ""


class Resources(Settings):
    """What one run of a comparison takes."""

    cpus: Annotated[float, Field(gt=0)] = 1
    gpus: Annotated[float, Field(ge=0)] = 0


class Recipe(Settings):
    """One experiment.

    ``search`` has, by method, the values that a comparison tries: ``{acls = {margin = [6, 10]}}``; ``resources`` are
    for comparisons too, and neither changes a run.

    Example:
        >>> recipe = Recipe.model_validate(
        ...     {"data": {"layout": "digits"}, "model": {"name": "mlp"}, "loss": {"name": "ce"}}
        ... )
        >>> recipe.optimiser.name, len(recipe.key)
        ('sgd', 16)
    """

    title: str = ""
    paper: str = ""
    table: str = ""
    notes: str = ""
    seed: int = 0
    data: DataSettings
    model: ModelSettings
    loss: Named = Named(name="ce")
    targets: TargetSettings = TargetSettings()
    mixing: Named | None = None
    optimiser: OptimiserSettings = OptimiserSettings()
    schedule: Schedule = Schedule()
    training: TrainingSettings = TrainingSettings()
    expected: tuple[Expected, ...] = ()
    search: dict[str, dict[str, Annotated[tuple[Any, ...], Field(min_length=1)]]] = {}
    resources: Resources = Resources()

    @model_validator(mode="after")
    def _buildable(self) -> Self:
        self.build_loss()
        self.build_mixing()
        return self

    def build_loss(self, ignore_index: int | None = None) -> Loss:
        """The loss of this recipe; ``ignore_index`` is the data set's, where the recipe says none."""
        name, given = self.loss.name, self.loss.parameters
        if name not in names():
            raise ValueError(f"unknown loss {name!r}{_nearest(name, names())}; known are {', '.join(names())}")
        own = [*describe(name).defaults(), "weight", "ignore_index", "reduction"]
        for parameter in given:
            if parameter not in own:
                known = ", ".join(own[:-1])
                raise ValueError(f"loss {name!r} has no {parameter!r}{_nearest(parameter, own)}; it has {known}")
        common = {} if ignore_index is None else {"ignore_index": ignore_index}
        try:
            return get(name, **(common | given))
        except (TypeError, ValueError) as error:
            raise ValueError(f"loss {name!r}: {error}") from error

    def build_mixing(self) -> Any:
        """What mixes the images of a batch, or None."""
        return None if self.mixing is None else self.mixing.built(MIXING, "mixing")

    def build_blanking(self) -> Any:
        """What blanks parts of the images of a batch, or None."""
        return None if self.data.blanking is None else self.data.blanking.built(BLANKING, "blanking")

    @property
    def key(self) -> str:
        """A hash of everything that the result depends on: where the data lies, and words, are not part of it."""
        plain = self.model_dump(mode="json", exclude=WORDS)
        plain["data"].pop("path")
        plain["data"].pop("pixels")
        plain["data"]["mean"], plain["data"]["std"] = (list(v) for v in self.data.normalisation)
        plain["loss"] = _complete(self.loss)
        for also in plain["data"]["also"].values():
            if isinstance(also, dict):
                also.pop("path")
        for name in ("workers", "checkpoint_seconds", "eval_batch_size", "tensorboard"):
            plain["training"].pop(name)
        return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()[:16]


def _complete(loss: Named) -> dict[str, Any]:
    """A loss with its defaults, and numbers of one type: whoever writes 10 means 10.0."""
    own = describe(loss.name).defaults()
    given = {k: float(v) if isinstance(own.get(k), float) else v for k, v in loss.parameters.items()}
    return {"name": loss.name} | own | given


def chain(steps: Iterable[dict[str, Any]]) -> list[Step]:
    """Views from their settings: ``[{step = "resize", size = 256}, {step = "centre_crop", size = 224}]``.

    Example:
        >>> chain([{"step": "resize", "size": 40}, {"step": "flip"}])
        [Resize(size=40, side='shorter'), RandomFlip(probability=0.5)]
    """
    return [Named(name=s.get("step", ""), **{k: _tuples(v) for k, v in s.items() if k != "step"}).built(STEPS, "step")
            for s in steps]  # fmt: skip


def load(path: str | Path, overrides: Iterable[str] = (), *, fresh_loss: bool = False) -> Recipe:
    """A recipe from a TOML file, with some of its values replaced.

    Args:
        path: The file.
        overrides: ``loss.margin=6`` and the like; values are TOML, or text; without a value, ``data.hold_out=``, the
            key is taken out.
        fresh_loss: Forget the parameters of the file's loss: another one is among the overrides.
    """
    path = Path(path)
    try:
        plain = tomllib.loads(path.read_text(encoding="utf-8"))
    except UnicodeDecodeError:
        raise ValueError(f"{path}: not a recipe in TOML, which is UTF-8.") from None
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{path}: not a recipe in TOML ({error}).") from error
    if fresh_loss:
        plain.pop("loss", None)
    for override in overrides:
        _replace(plain, override)
    return check(plain, str(path))


def check(plain: dict[str, Any], where: str) -> Recipe:
    """A recipe from plain values, or one sentence about the first thing that is wrong."""
    try:
        return Recipe.model_validate(plain)
    except ValidationError as error:
        raise ValueError(f"{where}: {_sentence(error)}") from error


def _replace(plain: dict[str, Any], override: str) -> None:
    name, equals, text = override.partition("=")
    if not equals or not name.strip():
        raise ValueError(f"a setting is replaced as name=value, loss.margin=6 for example, got {override!r}")
    *parents, last = name.strip().split(".")
    here = plain
    for parent in parents:
        here = here.setdefault(parent, {})
        if not isinstance(here, dict):
            raise ValueError(f"{override!r}: {parent!r} is a value, and has nothing below it")
    if not text.strip():
        here.pop(last, None)
        return
    try:
        here[last] = tomllib.loads(f"value = {text.strip()}")["value"]
    except tomllib.TOMLDecodeError as error:
        if text.strip()[0] in "{[\"'":
            raise ValueError(f"{override!r}: the value is not TOML ({error})") from error
        here[last] = text.strip()


def _sentence(error: ValidationError) -> str:
    first = error.errors()[0]
    place = [str(part) for part in first["loc"]]
    name = ".".join(place) or "the recipe"
    if first["type"] == "extra_forbidden":
        known = _fields(place[:-1])
        return f"unknown key {name!r}{_nearest(place[-1], known)}; known here are {', '.join(sorted(known))}."
    if first["type"] == "missing":
        return f"the key {name!r} is missing."
    if first["type"] in ("model_type", "model_attributes_type", "dict_type"):
        return f"{name}: a table of settings is needed (got {first['input']!r})."
    message = str(first.get("ctx", {}).get("error") or first["msg"])
    return f"{name}: {message[0].lower() + message[1:]} (got {first['input']!r})." if first["loc"] else f"{message}."


def _fields(place: list[str]) -> list[str]:
    """The keys that a part of a recipe has."""
    model: Any = Recipe
    for part in place:
        if part.isdigit() or not hasattr(model, "model_fields"):
            continue
        annotation = model.model_fields[part].annotation if part in model.model_fields else None
        candidates = [annotation, *get_args(annotation), *(a for x in get_args(annotation) for a in get_args(x))]
        model = next((c for c in candidates if isinstance(c, type) and issubclass(c, BaseModel)), None)
    return list(model.model_fields) if hasattr(model, "model_fields") else []


def _nearest(name: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(name, list(known), n=1)
    return f" (did you mean {close[0]!r}?)" if close else ""


def _tuples(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
