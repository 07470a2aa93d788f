"""The type `Predictions`: constructors that state what the numbers mean, read-only columns, batches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NoReturn

import numpy.typing as npt

from calibrant.predictions.data import Data
from calibrant.predictions.files import format_function, format_of, is_remote, open_files
from calibrant.predictions.rows import draw_holdout, first_rows, keep_rows, select_split
from calibrant.predictions.schema import GROUP, IGNORED, WEIGHT, check_options, class_name
from calibrant.predictions.stores import (
    BATCH,
    FileStore,
    MemoryStore,
    Store,
    as_rows,
    compare_arrays,
    find_remarks,
    store_arrays,
)

Kind = Literal["classification", "segmentation", "tokens"]
Split = Literal["train", "val", "test"]


class _Column:
    """An attribute that is a column; None if there is none. The type is Any because callers know what they opened."""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, predictions: Predictions | None, owner: type) -> Any:
        if predictions is None:
            return self
        store = predictions._store
        return store.column(self.name) if self.name in store.names else None


class Predictions:
    """What a classifier predicted for a set of samples and what was true, validated and frozen.

    Build it with `from_logits`, `from_probabilities` or `from_confidence`, or read it with `open`; the meaning of an
    array of numbers is never guessed. Arrays may come from NumPy, PyTorch, JAX or TensorFlow, or be lists. They are
    kept without a copy unless their type must change; arrays made here are read-only.

    Attributes:
        holds: ``"logits"``, ``"probabilities"`` or ``"confidence"``.
        data: the numbers as `Logits`, `Probabilities` or `Scores`; `data_type` is that type, without reading them.
        logits: floating point ``[N, C]``, for segmentation ``[N, C, H, W]``, for tokens ``[B, V, T]``; None if
            there are none, as for all columns that follow.
        probabilities: the same shape, in 0..1, summing to 1 over the classes.
        confidence: ``[N]`` in 0..1.
        correct: ``[N]`` bool, with confidence.
        predicted: ``[N]`` int64 or text, the predicted class, with confidence.
        actual: ``[N]`` likewise, the true class, with confidence and predicted.
        labels: ``[N]``, ``[N, H, W]`` or ``[B, T]`` int64, from 0 to C - 1 or ``ignore_index``.
        ids: ``[N]`` sample ids, int64 or text.
        groups: name to ``[N]`` int64 or text: the site, the sex, the camera.
        objectness: ``[N]`` in 0..1, the share of the image that shows the object.
        weight: ``[N]`` float64, importance weights as they were given: how much each sample counts. All alike, they say
            what no weights say.
        class_names: one name per class.
        positive: the position of the positive class of two, as given or by convention; None if it is unknown.
        num_classes: the number of classes.
        kind: ``"classification"``, ``"segmentation"`` or ``"tokens"``, whose samples are sequences.
        ignore_index: labels with this value are left out everywhere; -100 by default, as in the losses.
        split: ``"train"``, ``"val"``, ``"test"`` or None.
        labelled: whether there are labels, or whether each prediction was correct is known.
        files: the files that the predictions are read from, if they are not in memory.
        repeats: how many rows repeat an id that came before; None if there are no ids.
        weighted: whether there are importance weights.
        remarks: sentences about values that are valid but look odd, such as logits that look like probabilities, and
            about what was taken for weights.

    Example:
        >>> import numpy as np
        >>> from calibrant import Predictions
        >>> p = Predictions.from_logits(np.array([[2.0, 0.0], [0.0, 1.0], [3.0, 1.0]]), [0, 1, 1], split="val")
        >>> len(p), p.num_classes, p.holds
        (3, 2, 'logits')
        >>> p
        Predictions(3 samples, logits of 2 classes, labels, split='val')
        >>> [len(batch) for batch in p.batches(2)]
        [2, 1]
        >>> p.samples(p.labels == 1).logits
        array([[0., 1.], [3., 1.]])
    """

    __slots__ = ("__weakref__", "_store")
    _store: Store

    def __init__(self) -> None:
        raise TypeError("use Predictions.from_logits, from_probabilities, from_confidence or open")

    @classmethod
    def _of(cls, store: Store) -> Predictions:
        predictions = object.__new__(cls)
        object.__setattr__(predictions, "_store", store)
        return predictions

    @classmethod
    def from_logits(
        cls,
        logits: Any,
        labels: Any,
        *,
        ids: Any = None,
        groups: Mapping[str, Any] | None = None,
        objectness: Any = None,
        weight: Any = None,
        class_names: Sequence[str] | None = None,
        positive: str | int | bool | None = None,
        kind: Kind = "classification",
        ignore_index: int | None = IGNORED,
        split: Split | None = None,
    ) -> Predictions:
        """Predictions given as logits, any finite numbers.

        Args:
            logits: ``[N, C]``, for segmentation ``[N, C, H, W]``, for tokens ``[B, T, V]``; float16, float32 or float64
                are kept. For two classes one column is enough, ``[N]`` or ``[N, 1]``, the input of a sigmoid: its class
                is ``positive``.
            labels: ``[N]``, ``[N, H, W]`` or ``[B, T]`` whole numbers, or text where class_names are given or there is
                one column.
            ids: ``[N]`` whole numbers or text.
            groups: name to ``[N]`` whole numbers or text.
            objectness: ``[N]`` in 0..1.
            weight: ``[N]`` importance weights, from 0 to 1e100, not all 0; one per image or sequence.
            class_names: one name per class.
            positive: which of two classes is the positive one, where convention does not say (1 of 0 and 1, True of
                False and True, 1 of -1 and 1).
            kind: ``"classification"``, ``"segmentation"``, or ``"tokens"`` for a language model: the tokens of a
                sequence are not independent, so intervals draw sequences.
            ignore_index: a label that marks samples, pixels or tokens to leave out; None if none does.
            split: what the samples are used for; stored with them.
        """
        facts = {"class_names": class_names, "positive": positive, "kind": kind, "ignore_index": ignore_index}
        data = {"logits": logits, "labels": labels}
        columns = {"ids": ids, "groups": groups, "objectness": objectness, "weight": weight}
        return cls._of(store_arrays(data, **columns, split=split, **facts))

    @classmethod
    def from_probabilities(
        cls,
        probabilities: Any,
        labels: Any,
        *,
        ids: Any = None,
        groups: Mapping[str, Any] | None = None,
        objectness: Any = None,
        weight: Any = None,
        class_names: Sequence[str] | None = None,
        positive: str | int | bool | None = None,
        kind: Kind = "classification",
        ignore_index: int | None = IGNORED,
        split: Split | None = None,
    ) -> Predictions:
        """Predictions given as probabilities, in 0..1 and summing to 1 within 1e-3 (half precision: 1e-2).

        Sums of probabilities that were rounded to a few decimal places may be off by as much as rounding explains, up
        to 1e-2. The arguments are those of `from_logits`; a single column is P(positive). Nothing is clipped or
        normalised.

        Example:
            >>> from calibrant import Predictions
            >>> p = Predictions.from_probabilities([0.9, 0.25], ["yes", "no"], positive="yes")
            >>> p.class_names, p.probabilities.tolist(), p.labels.tolist()
            (('no', 'yes'), [[0.09999999999999998, 0.9], [0.75, 0.25]], [1, 0])
        """
        facts = {"class_names": class_names, "positive": positive, "kind": kind, "ignore_index": ignore_index}
        data = {"probabilities": probabilities, "labels": labels}
        columns = {"ids": ids, "groups": groups, "objectness": objectness, "weight": weight}
        return cls._of(store_arrays(data, **columns, split=split, **facts))

    @classmethod
    def from_confidence(
        cls,
        confidence: Any,
        correct: Any = None,
        *,
        predicted: Any = None,
        labels: Any = None,
        ids: Any = None,
        groups: Mapping[str, Any] | None = None,
        objectness: Any = None,
        weight: Any = None,
        split: Split | None = None,
    ) -> Predictions:
        """Predictions of which only the confidence ``[N]`` in 0..1 is known, and whether each was correct ``[N]``.

        Instead of ``correct``, give the ``predicted`` and the true class (``labels``), ``[N]`` each, whole numbers or
        text: a prediction is correct where they agree, and results can be broken down by class.

        Example:
            >>> from calibrant import Predictions
            >>> p = Predictions.from_confidence([0.9, 0.6], predicted=["cat", "dog"], labels=["cat", "cat"])
            >>> p.correct.tolist(), p.predicted.tolist(), p.actual.tolist()
            ([True, False], ['cat', 'dog'], ['cat', 'cat'])
        """
        if labels is not None:
            if correct is not None or predicted is None:
                raise ValueError("from_confidence takes correct, or predicted and labels, which are compared")
            correct = compare_arrays(predicted, labels)
        data = {"confidence": confidence, "correct": correct}
        classes = {"predicted": predicted, "actual": labels}
        columns = {"ids": ids, "groups": groups, "objectness": objectness, "weight": weight}
        return cls._of(store_arrays(data, classes, **columns, split=split))

    @classmethod
    def open(
        cls,
        path: str | Path | Sequence[str | Path],
        *,
        columns: Mapping[str, str | Sequence[str] | None] | None = None,
        groups: Sequence[str] | None = None,
        class_names: Sequence[str] | None = None,
        positive: str | int | bool | None = None,
        kind: Kind | None = None,
        ignore_index: int | None = None,
        split: str | None = None,
        unlabelled: bool = False,
    ) -> Predictions:
        """Open files of predictions; values are read when they are needed, and `batches` never holds them all.

        Formats: ``.npz``, ``.npy`` (``x_logits.npy`` goes with ``x_labels.npy``), ``.parquet``, ``.safetensors``,
        ``.csv`` and ``.tsv``, these two also with ``.gz``. A file holds ``logits`` or ``probabilities`` with
        ``labels``, or ``confidence`` with ``correct`` (or with ``predicted`` and ``labels``, which are compared), and
        perhaps ``ids``, ``objectness``, ``weight`` (importance weights, never a group) and ``group.NAME``. A table
        has a list column, or one column per class: ``logits_0``, ``logits_1``, ... or ``logits.cat``, ``logits.dog``,
        ... For two classes, one column of probabilities or logits of the class ``positive`` is enough. Nothing is ever
        unpickled.

        Labels are matched with columns by name: text, and also numbers where columns are not numbered 0, 1, 2, ...;
        otherwise numbers are positions. An ambiguous file is refused. A file that changes while it is read is noticed,
        and so is a damaged one where the format has checksums (``.csv`` and other programs' ``.npy`` and
        ``.safetensors`` have none).

        Args:
            path: a file, a folder of shards, a pattern such as ``"runs/*.parquet"``, or a list of them. Shards of a
                folder or a pattern come in natural order (2 before 10), those of a list as listed. Parquet may lie
                elsewhere: ``"s3://bucket/runs/*.parquet"``, ``gs://``, ``hdfs://``, as Arrow's file systems take it.
            columns: our names to the file's: ``{"labels": "truth", "probabilities": ["cat", "dog"]}``; ``"p_*"``
                stands for all columns that match. The columns name the classes, without a shared prefix such as p_.
                None for ids, objectness, weight or split says that the file has none, whatever its columns are called.
            groups: further columns to take as groups.
            class_names: names of the classes, where the file does not say; labels that are text need them. Columns that
                have names are brought into this order, or refused if their names are different; columns that are listed
                in ``columns`` get these names in the order of that list.
            positive: which of two classes is the positive one, whose values a single column holds. Not needed where
                the column names it (``p_yes``), or where the classes are 0 and 1, False and True, or -1 and 1.
            kind: ``"segmentation"`` for images, where the file does not say. Arrays ``[B, T, V]`` with labels
                ``[B, T]`` are tokens.
            ignore_index: where the file does not say; -100 by default, as in the losses.
            split: which rows to read, where the file has a column ``split`` with a value per row (train, val and test,
                or any names), or a column that ``columns`` maps to it; several values are refused without it. Where
                the file does not say, what its samples are used for: ``"train"``, ``"val"`` or ``"test"``.
            unlabelled: whether labels may be missing, as when a policy is applied to new data; everything else needs
                them.
        """
        facts = {"class_names": class_names, "positive": positive, "kind": kind, "ignore_index": ignore_index}
        options = check_options(columns, groups, facts | {"split": split}, unlabelled=unlabelled)
        return cls._of(select_split(open_files(path, options), split))

    @classmethod
    def from_frame(
        cls,
        frame: Any,
        *,
        columns: Mapping[str, str | Sequence[str] | None] | None = None,
        groups: Sequence[str] | None = None,
        class_names: Sequence[str] | None = None,
        positive: str | int | bool | None = None,
        ignore_index: int | None = None,
        split: str | None = None,
        unlabelled: bool = False,
    ) -> Predictions:
        """Predictions in a data frame of pandas or polars, with columns as in a file.

        Arguments are those of `open`, about the columns of the frame instead of a file's.

        Example:
            >>> import pyarrow as pa
            >>> from calibrant import Predictions
            >>> frame = pa.table({"truth": ["cat", "dog"], "p_cat": [0.9, 0.2], "p_dog": [0.1, 0.8]})
            >>> Predictions.from_frame(frame, columns={"labels": "truth", "probabilities": "p_*"})
            Predictions(2 samples, probabilities of 2 classes, labels)
        """
        from calibrant.predictions.formats.tables import from_frame  # loads pyarrow

        facts = {"class_names": class_names, "ignore_index": ignore_index, "split": split, "positive": positive}
        return cls._of(from_frame(frame, check_options(columns, groups, facts, unlabelled=unlabelled)))

    def save(self, path: str | Path, *, spreadsheet_safe: bool = False) -> None:
        """Write a file in the format of its suffix, under a temporary name and then renamed; see `open` for formats.

        Opened files are converted batch by batch. ``.csv`` keeps float64, but no ignore_index; class names become
        names of columns. ``.npy`` writes one file per array, the one named by ``path`` last, and a file
        of checksums that hold the set together.

        Args:
            path: the file to write.
            spreadsheet_safe: in ``.csv``, put a ' before text that a spreadsheet would take for a formula; it stays
                there when the file is read again.
        """
        if is_remote(path):
            raise ValueError(f"{path}: predictions are written to this machine alone; save a file here and copy it")
        suffix = format_of(Path(path))
        settings = {"spreadsheet_safe": True} if spreadsheet_safe and suffix == ".csv" else {}
        format_function("save", suffix)(self._store, Path(path), **settings)

    def load(self) -> Predictions:
        """The same predictions with all arrays in memory; to read a file, use `open`."""
        if not isinstance(self, Predictions):
            raise TypeError("Predictions.load takes opened predictions: read a file with Predictions.open(path)")
        return Predictions._of(self._store.load())

    def without_repeats(self) -> Predictions:
        """The first row of each id: these predictions, where no id repeats or there are none.

        Takes a pass over the ids, and some 50 bytes of memory per row; opened files are still read batch by batch.

        Example:
            >>> from calibrant import Predictions
            >>> p = Predictions.from_confidence([0.9, 0.6, 0.9], [True, False, True], ids=["a", "b", "a"])
            >>> p.repeats, p.without_repeats().ids.tolist()
            (1, ['a', 'b'])
        """
        mask = first_rows(self._store)
        return self if mask is None else Predictions._of(keep_rows(self._store, mask))

    def unweighted(self) -> Predictions:
        """The same samples without importance weights; an opened file is not read for this.

        Example:
            >>> from calibrant import Predictions
            >>> p = Predictions.from_confidence([0.9, 0.6], [True, False], weight=[2, 0.5])
            >>> p.weight.tolist(), p.unweighted().weight
            ([2.0, 0.5], None)
        """
        return Predictions._of(self._store.without(WEIGHT)) if self.weighted else self

    def samples(self, index: slice | npt.ArrayLike) -> Predictions:
        """Some of the samples: a slice, an array of row numbers or a bool mask.

        An opened file is read through once, and only the chosen samples are kept.
        """
        return Predictions._of(self._store.take(as_rows(index, len(self))))

    def holdout(self, share: float = 0.5, *, seed: int = 0, by: str | None = None) -> tuple[Predictions, Predictions]:
        """Divide the samples at random: a share of them to fit on, and the others to judge by.

        A policy must be fitted on other samples than it is judged by; this is for where there is one labelled set only.
        Rows with one id stay together. Opened files are not read into memory. The parts are marked ``split="val"`` and
        ``split="test"``, so that nothing is fitted on the second by mistake.

        Args:
            share: of the samples to fit on; of the groups, where rows stay together.
            seed: of the draw.
            by: a group column: rows with one value of it stay together, such as the images of one patient.

        Example:
            >>> import numpy as np
            >>> from calibrant import Predictions
            >>> rng = np.random.default_rng(0)
            >>> p = Predictions.from_logits(rng.standard_normal((10, 3)), rng.integers(0, 3, 10))
            >>> [len(part) for part in p.holdout(0.4)], [part.split for part in p.holdout(0.4)]
            ([4, 6], ['val', 'test'])
        """
        if by is not None:
            check_group(self, by)
        first, second = draw_holdout(self, share, seed, by)
        return Predictions._of(first), Predictions._of(second)

    def batches(self, size: int | None = None) -> Iterator[Predictions]:
        """Consecutive batches of at most ``size`` samples, by default as many as hold about four million numbers.

        Batches of an opened file are read one at a time, into new memory that may be written to.
        """
        if size is None:
            size = self._store.schema.rows(BATCH)
        if size < 1:
            raise ValueError(f"batch size must be at least 1, got {size}")
        schema, names = self._store.schema, self._store.names
        return (Predictions._of(MemoryStore(schema, block)) for block in self._store.blocks(size, names))

    logits = _Column()
    probabilities = _Column()
    confidence = _Column()
    correct = _Column()
    predicted = _Column()
    actual = _Column()
    labels = _Column()
    ids = _Column()
    objectness = _Column()
    weight = _Column()

    @property
    def data(self) -> Data:
        """The numbers, as what they are: `Logits`, `Probabilities` or `Scores`."""
        schema = self._store.schema
        return schema.data(self._store.column(schema.holds))

    @property
    def data_type(self) -> type[Data]:
        """What the data are; unlike `data`, this reads none."""
        return self._store.schema.data

    @property
    def holds(self) -> str:
        """What the data are, by name: logits, probabilities or confidence."""
        return self._store.schema.holds

    @property
    def groups(self) -> dict[str, Any]:
        """Name to ``[N]`` int64 or text."""
        return {name: self._store.column(GROUP + name) for name in self.group_names}

    @property
    def group_names(self) -> tuple[str, ...]:
        """The names of the groups; unlike `groups`, this reads no data."""
        return tuple(name.removeprefix(GROUP) for name in self._store.names if name.startswith(GROUP))

    @property
    def class_names(self) -> tuple[str, ...] | None:
        """One name per class, or None."""
        return self._store.schema.class_names

    @property
    def positive(self) -> int | None:
        """The position of the positive class of two, or None."""
        return self._store.schema.positive

    @property
    def num_classes(self) -> Any:
        """The number of classes, or None."""
        return self._store.schema.num_classes

    @property
    def kind(self) -> str:
        """Classification, segmentation or tokens."""
        return self._store.schema.kind

    @property
    def ignore_index(self) -> int | None:
        """The label that is left out everywhere, or None."""
        return self._store.schema.ignore_index

    @property
    def split(self) -> str | None:
        """What the samples are used for, or None."""
        return self._store.schema.split

    @property
    def labelled(self) -> bool:
        """Whether there are labels, or correctness is known; unlike `labels`, this reads no data."""
        return "labels" in self._store.names or "correct" in self._store.names

    @property
    def weighted(self) -> bool:
        """Whether there are importance weights; unlike `weight`, this reads no data."""
        return WEIGHT in self._store.names

    @property
    def repeats(self) -> int | None:
        """How many rows repeat an id that came before, in a pass over the ids; None if there are no ids."""
        if "ids" not in self._store.names:
            return None
        mask = first_rows(self._store)
        return 0 if mask is None else int(len(mask) - mask.sum())

    @property
    def files(self) -> tuple[str, ...]:
        """The files that the predictions are read from; none where they are in memory."""
        return self._store.files

    @property
    def remarks(self) -> tuple[str, ...]:
        """What looks odd although it is valid, and what was taken for weights, one sentence each.

        Values are used as they were declared. Reading stops at the first block that looks as expected; weights are read
        through.
        """
        return find_remarks(self._store)

    def __len__(self) -> int:
        return len(self._store)

    def __repr__(self) -> str:
        schema = self._store.schema
        size = " x ".join(map(str, schema.shape[1:]))
        data = f"{schema.holds} of {schema.num_classes} classes{' at ' + size if size else ''}"
        parts = [self._store.describe(), data if schema.shape else schema.holds]
        parts += [name for name in self._store.names if name != schema.holds]
        values = {"ignore_index": schema.ignore_index, "split": schema.split}
        parts += [f"{name}={value!r}" for name, value in values.items() if value not in (None, IGNORED)]
        return f"Predictions({', '.join(parts)})"

    def __setattr__(self, name: str, value: Any) -> NoReturn:
        raise AttributeError(f"Predictions cannot be changed: build new ones instead of setting {name}")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"Predictions cannot be changed: {name} cannot be deleted")

    def __reduce__(self) -> tuple[Any, ...]:
        return Predictions._of, (self._store,)


def check_group(predictions: Predictions, column: str) -> None:
    """Raise unless the predictions have a group column of this name."""
    if column not in predictions.group_names:
        available = ", ".join(predictions.group_names) or "none"
        raise ValueError(f"no group column {column!r}; there are {available}")


def refuse_weights(predictions: Predictions, purpose: str) -> None:
    """Raise if there are importance weights, for a ``purpose``, such as "a promise", that has no use of them."""
    if predictions.weighted:
        raise ValueError(
            f"{purpose} takes samples that were drawn alike, and these have importance weights: --column weight= "
            "leaves them out (in Python predictions.unweighted())"
        )


def has_split(predictions: Predictions) -> bool:
    """Whether the files of opened predictions say what their samples are used for, in a column or as a fact."""
    store = predictions._store
    return isinstance(store, FileStore) and store.readers[0].columns.has_split


def replace_data(predictions: Predictions, holds: str, values: Any) -> Predictions:
    """A copy of labelled predictions with new logits or probabilities, in the layout of `Predictions.logits`."""
    names = ("ids", "objectness", WEIGHT, "class_names", "kind", "ignore_index", "split")
    facts = {name: getattr(predictions, name) for name in names} | {"groups": predictions.groups or None}
    if predictions.positive is not None:
        facts["positive"] = class_name(predictions.positive, predictions.class_names)
    if predictions.kind == "tokens":
        values = values.transpose(0, 2, 1)  # as users give them
    return Predictions._of(store_arrays({holds: values, "labels": predictions.labels}, **facts))
