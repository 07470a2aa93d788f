"""The sections of a recipe, and the values that they may have.

Numbers are finite and bounded: a value out of bounds is most likely a typo, and would fail late or exhaust memory.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal, Self, get_args

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from calibrant.base.checks import LARGEST_SEED, did_you_mean
from calibrant.metrics import DETECTION, MEASURED, describe
from calibrant.training.components import BLANKING, Named, make_colouring, make_steps

MOST_STEPS = 10**9
#: Upper bound of learning rates, weight decay and other factors.
MOST_RATE = 1e6

Whole = Annotated[int, Field(strict=True)]
Number = Annotated[float, Field(strict=True, allow_inf_nan=False)]
Seed = Annotated[Whole, Field(ge=0, le=LARGEST_SEED)]
Count = Annotated[Whole, Field(gt=0, le=10**9)]
Share = Annotated[Number, Field(ge=0, le=1)]
Part = Annotated[Number, Field(gt=0, lt=1)]
Rate = Annotated[Number, Field(gt=0, le=MOST_RATE)]
Factor = Annotated[Number, Field(ge=0, le=MOST_RATE)]
Flag = Annotated[bool, Field(strict=True)]
Proposals = Annotated[Whole, Field(gt=0, le=100_000)]

#: Metrics that can choose the best epoch: those of validation that have a direction.
BEST_BY = tuple(name for name in (*MEASURED, "mean_iou", *DETECTION) if describe(name).better != "none")

#: The roles of data in a run.
Role = Literal["train", "val", "test"]

_FILE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]{0,63}")


def _check_file_name(name: str) -> str:
    if not _FILE_NAME.fullmatch(name):
        raise ValueError("the name of a set becomes a file name: at most 64 letters, digits, _ . + and -")
    return name


#: The name of a set that is predicted, and of its file.
SetName = Annotated[str, AfterValidator(_check_file_name)]


class Settings(BaseModel):
    """A section of a recipe: frozen, and unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class HoldOut(Settings):
    """The validation data split off the training or test data: a fraction, a count, or a count per class."""

    of: Literal["train", "test"] = "train"
    fraction: Part | None = None
    count: Count | None = None
    per_class: Count | None = None
    seed: Seed = 0

    @model_validator(mode="after")
    def _check_one_size(self) -> Self:
        if sum(v is not None for v in (self.fraction, self.count, self.per_class)) != 1:
            raise ValueError("takes one of fraction, count and per_class")
        return self


class LabelNoise(Settings):
    """Wrong labels for a share of the training samples: any other class (symmetric), or the next one (pair)."""

    rate: Share
    kind: Literal["symmetric", "pair"] = "symmetric"
    seed: Seed = 0


class TextSettings(Settings):
    """How texts become rows of ``length`` token ids.

    Attributes:
        vocabulary: Largest number of words, the most frequent of the training texts.
        side: Keep the first or the last words; a shorter text is padded at the other end.
        unknown: Words outside the vocabulary are one token, or are dropped.
        min_count: How often a word must occur.
        vectors, learn_vectors: A file of word vectors in GloVe's format, or vectors learned from the training texts.
        dimensions: Dimensions of the vectors.
    """

    vocabulary: Annotated[Whole, Field(gt=2, le=10**7)] = 20_000
    length: Annotated[Whole, Field(gt=0, le=10**6)] = 1000
    side: Literal["first", "last"] = "first"
    unknown: Literal["token", "drop"] = "token"
    min_count: Count = 1
    vectors: str | None = None
    learn_vectors: bool = False
    dimensions: Annotated[Whole, Field(gt=0, le=10**5)] = 100

    @model_validator(mode="after")
    def _check_vectors(self) -> Self:
        if self.learn_vectors and self.vectors is not None:
            raise ValueError("takes vectors or learn_vectors, not both")
        return self


def _check_reader_options(options: dict[str, Any]) -> dict[str, Any]:
    for name in ("recipe", "path", "split", "layout", "root", "on_error"):
        if name in options:
            raise ValueError(f"{name!r} is not an option of a reader")
    return options


ReaderOptions = Annotated[dict[str, Any], AfterValidator(_check_reader_options)]


class AlsoSettings(Settings):
    """A further set to predict at the end.

    Attributes:
        layout, path: Layout and folder of another data set; without a path the set is left out of the run.
        split: Name of the split; the test split if left out.
        options: Options of the reader, added to those of the test split if the layout is the same.
        variant: ``"context-only"``: every object covered; ``"single-object"``: one sample per annotated object.
        pool: Predict the test set and this one together, as one set (SC, Fig. 8).
    """

    layout: str | None = None
    path: str = ""
    split: str | None = None
    options: ReaderOptions = {}
    variant: Literal["context-only", "single-object"] | None = None
    pool: bool = False


class DataSettings(Settings):
    """The data and its preprocessing.

    Attributes:
        layout: A name that `calibrant data layouts` lists.
        path: The folder; ``--data`` on the command line replaces it.
        options: Options of the layout's reader, for every split.
        split_options: Further options for one split: ``{train = {cap = 50000}}``.
        train, val, test: Names of the splits; without ``val``, ``hold_out`` makes one.
        test_share: Cut the test set from the training split, the same for every seed; for data without splits.
        hold_out: Split the validation set off ``train`` or ``test``.
        train_count: Train on this many samples, drawn from what ``hold_out`` leaves of the training split; on all if
            left out.
        label_noise: Wrong labels for a share of the training samples: ``{rate = 0.4, kind = "pair", seed = 0}``. What
            ``hold_out`` takes off, and every other set, keeps its labels.
        resample: Merge train and test and draw them anew for every seed (LR).
        variant: ``"single-object"``: one sample per annotated object.
        variant_of: The splits that ``variant`` applies to.
        context_rate: Share of the training images shown with every object covered.
        train_steps, steps: Steps of the view for training and for evaluation.
        resampling: How images are scaled.
        padding: Colour of padding, or ``"edge"`` for the nearest pixel.
        colouring: Colour jitter, ``{brightness = 0.4, ...}``.
        blanking: Cutout or random erasing, on training batches.
        channels: 3, or 1 for greyscale.
        mean, std: Normalisation of the channels: one number for each, or one for all.
        text: For data sets of texts.
        also: Further sets to predict at the end, by name; ``"context-only"`` is the test set with every object covered.
        pixels: For masks: labelled pixels per image that are written to the prediction files, drawn at random; all if
            left out. The metrics of a run cover every pixel.
        exclude: For masks: a class that is trained on, but whose labelled pixels are neither measured nor written. The
            mean IoU is that of the other classes, over all labelled pixels (MbLS excludes ``"background"``).
        interpolate: For masks: false takes the logits of validation and predictions before the network's last
            interpolation, each with the label of the nearest pixel (SC).
    """

    layout: str
    path: str = ""
    options: ReaderOptions = {}
    split_options: dict[Role, ReaderOptions] = {}
    train: str = "train"
    val: str | None = None
    test: str = "test"
    test_share: Part | None = None
    hold_out: HoldOut | None = None
    train_count: Count | None = None
    label_noise: LabelNoise | None = None
    resample: Flag = False
    variant: Literal["single-object"] | None = None
    variant_of: tuple[Role, ...] = ("train",)
    context_rate: Share = 0.0
    train_steps: Annotated[tuple[dict[str, Any], ...], Field(max_length=100)] = ()
    steps: Annotated[tuple[dict[str, Any], ...], Field(max_length=100)] = ()
    resampling: Literal["bilinear", "bicubic"] = "bilinear"
    padding: Annotated[Whole, Field(ge=0, le=255)] | Literal["edge"] = 0
    colouring: dict[str, Number] = {}
    blanking: Named | None = None
    channels: Literal[1, 3] = 3
    mean: tuple[Annotated[Number, Field(ge=-MOST_RATE, le=MOST_RATE)], ...] = (0.5,)
    std: tuple[Rate, ...] = (0.25,)
    text: TextSettings | None = None
    also: Annotated[dict[SetName, Literal["context-only"] | AlsoSettings], Field(max_length=100)] = {}
    pixels: Count | None = None
    exclude: str | None = None
    interpolate: Flag = True

    @model_validator(mode="after")
    def _check_parts(self) -> Self:
        reserved = {"train", "val", "test"} & self.also.keys()
        if reserved:
            raise ValueError(f"also names {reserved.pop()!r}, which every run has; choose another name")
        make_steps(self.train_steps)
        make_steps(self.steps)
        make_colouring(self.colouring)
        if self.blanking is not None:
            self.blanking.build("blanking", BLANKING)
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
    """The network, as for `calibrant.models.build`; further keys are options of its builder."""

    model_config = ConfigDict(extra="allow", frozen=True)

    name: str
    stem: str | None = None
    weights: str | None = None
    head: Literal["keep", "drop"] = "keep"

    @property
    def options(self) -> dict[str, Any]:
        """Options of the network's builder."""
        return dict(self.model_extra or {})

    @model_validator(mode="after")
    def _check_options(self) -> Self:
        for name, source in (("num_classes", "the data"), ("seed", "the run"), ("trust_code", "the command")):
            if name in self.options:
                raise ValueError(f"{name!r} is not an option of a model: it is set by {source}")
        return self


class TargetSettings(Settings):
    """The targets that the loss is given: labels, or the adaptive targets of ALS."""

    name: Literal["hard", "adaptive"] = "hard"
    beta: Share = 1.0
    reading: Literal["union", "single"] = "union"
    object_aware_mixing: Flag = False


class DetectionSettings(Settings):
    """A detector on the recipe's model.

    Attributes:
        pretraining: The recipe whose methods train the backbones.
        backbone: Name of the backbone; for a method, a method of ``pretraining``.
        weights: A hash of the backbone's weights; set when a run begins.
        pyramid, anchors, aspects, frozen_stages, pooled, candidates, proposals, regions, nms, least_score, detections:
            As for `calibrant.models.build_detector`; pairs are for training and for evaluation.
    """

    pretraining: str = ""
    backbone: str = ""
    weights: str = ""
    pyramid: Flag = False
    anchors: Annotated[tuple[Annotated[Whole, Field(gt=0, le=8192)], ...], Field(min_length=1, max_length=20)] = (
        64, 128, 256, 512,
    )  # fmt: skip
    aspects: Annotated[tuple[Rate, ...], Field(min_length=1, max_length=20)] = (0.5, 1.0, 2.0)
    frozen_stages: Annotated[Whole, Field(ge=0, le=10)] = 1
    pooled: Annotated[Whole, Field(gt=0, le=64)] = 7
    candidates: tuple[Proposals, Proposals] = (12_000, 6_000)
    proposals: tuple[Proposals, Proposals] = (2_000, 300)
    regions: Proposals = 256
    nms: Share = 0.3
    least_score: Share = 0.05
    detections: Proposals = 100

    @property
    def of_detector(self) -> dict[str, Any]:
        """The arguments of `calibrant.models.build_detector`."""
        return self.model_dump(exclude={"pretraining", "backbone", "weights"})


class TrainingSettings(Settings):
    """Length, batch size, precision and checkpoints of training.

    Attributes:
        epochs: Passes over the training data; 1 if neither epochs nor steps are given.
        steps: Length of the run in steps, instead of epochs.
        max_steps: Stop after this many steps, with the schedule of the whole run.
        batch_size: Samples per batch, of all processes together.
        accumulate: Number of parts in which a batch goes through the model.
        precision: As in Lightning Fabric; validation and predictions use full precision.
        channels_last: Memory format of images and weights.
        compile: Pass the model to torch.compile.
        workers: Processes that read the data; with 0, data are read between steps.
        drop_last: Leave out the last batch of an epoch if it is not full.
        keep: The model of the last epoch, or the best on the validation data.
        best_by: The metric that chooses the best model.
        checkpoint_seconds: Seconds between checkpoints within an epoch.
        eval_batch_size: Batch size of validation and predictions.
        tensorboard: Write a log for TensorBoard too.
    """

    epochs: Rate | None = None
    steps: Annotated[Whole, Field(gt=0, le=MOST_STEPS)] | None = None
    max_steps: Annotated[Whole, Field(gt=0, le=MOST_STEPS)] | None = None
    batch_size: Annotated[Whole, Field(gt=0, le=10**6)] = 128
    accumulate: Annotated[Whole, Field(gt=0, le=10**6)] = 1
    precision: Literal["32-true", "bf16-mixed", "16-mixed", "64-true"] = "32-true"
    channels_last: Flag = False
    compile: Flag = False
    workers: Annotated[Whole, Field(ge=0, le=1024)] = 0
    drop_last: Flag = True
    keep: Literal["last", "best"] = "last"
    best_by: str = "accuracy"
    checkpoint_seconds: Annotated[Number, Field(gt=0, le=1e9)] = 60.0
    eval_batch_size: Annotated[Whole, Field(gt=0, le=10**6)] = 256
    tensorboard: Flag = False

    @model_validator(mode="after")
    def _check_length(self) -> Self:
        if self.steps is not None and self.epochs is not None:
            raise ValueError("takes epochs or steps, not both")
        if self.best_by not in BEST_BY:
            hint = did_you_mean(self.best_by, BEST_BY)
            raise ValueError(f"best_by takes one of {', '.join(BEST_BY)}, not {self.best_by!r}{hint}")
        return self


class Expected(Settings):
    """Numbers that the paper prints, to compare with ours."""

    method: str
    where: str = "test"
    values: dict[str, Number]
    note: str = ""


#: Repairs that a row or a column of a table can name; those with a paper's name use its grid of temperatures.
Repair = Literal["temperature", "temperature-mbls", "temperature-lr", "logit-norm"]
REPAIRS: tuple[Repair, ...] = get_args(Repair)


class MethodSettings(Settings):
    """A method of a paper's table: where it differs from the recipe.

    Attributes:
        label: As the paper prints it; the method's name in the recipe if left out.
        loss, mixing: Used instead of the recipe's.
        targets, data, model, detection, optimiser, schedule, training: Values that override the recipe's.
        repair: A repair of the predictions of another method.
        of: That other method, whose runs are used: this one has none.
    """

    label: str = ""
    loss: Named | None = None
    mixing: Named | None = None
    targets: dict[str, Any] = {}
    data: dict[str, Any] = {}
    model: dict[str, Any] = {}
    detection: dict[str, Any] = {}
    optimiser: dict[str, Any] = {}
    schedule: dict[str, Any] = {}
    training: dict[str, Any] = {}
    repair: Repair | None = None
    of: str | None = None

    @model_validator(mode="after")
    def _check_repaired(self) -> Self:
        if (self.of is None) != (self.repair is None) or (self.of is not None and self.changes):
            raise ValueError("a repaired method has repair and of, and changes nothing of the method that of names")
        return self

    @property
    def changes(self) -> dict[str, Any]:
        """Its changes to a recipe: values by dotted name, and ``loss`` and ``mixing`` as a whole."""
        components = {name: component.model_dump() for name in ("loss", "mixing") if (component := getattr(self, name))}
        sections = ("targets", "data", "model", "detection", "optimiser", "schedule", "training")
        return components | {f"{name}.{key}": value for name in sections for key, value in getattr(self, name).items()}


#: Follows the name of a method, before the metric that its settings were tuned for.
TUNED_FOR = ", tuned for "


class TableSettings(Settings):
    """A table of a paper: its rows, by the names of methods, and its columns.

    A column is a metric, with ``@set`` for a set other than the test set and `` + repair`` after a repair:
    ``accuracy``, ``mean_confidence@context``, ``ece + temperature-mbls``.
    """

    title: str = ""
    rows: tuple[str, ...]
    columns: tuple[str, ...]


class Resources(Settings):
    """Resources that one run of a comparison needs."""

    cpus: Annotated[Number, Field(gt=0, le=4096)] = 1
    gpus: Annotated[Number, Field(ge=0, le=1024)] = 0
