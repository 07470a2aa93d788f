"""What every calibrator is: parameters in ``__init__``, `fit` on a `Stream`, and one formula for all uses."""

from __future__ import annotations

import inspect
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np

from calibrant.base.arrays import Array, Doubles, R, as_kind_of, as_numpy, class_rows, in_threads, row_slices
from calibrant.base.checks import Ints, as_logits, check_finite
from calibrant.posthoc.ops import NumpyOps, Ops, V, softmax
from calibrant.predictions import FLOOR, Predictions, refuse_weights, replace_data

Pair = tuple[Array, Ints]

# Numbers that a thread takes at a time, at least and at most: enough for the interpreter's lock to change hands seldom,
# and few enough for the cache.
PARTS = (1 << 17, 1 << 19)
WIDE = 1e18  # float32 logits beyond this are computed with in float64: their squares overflow
LEAST, MOST = 1e-50, 1e50  # bounds of the numbers in a policy: any allowed logit stays finite under them


def logits_of(batch: Predictions, floor: float = FLOOR) -> Array:
    """The logits of predictions; of probabilities, their logarithms in float64, with ``floor`` for smaller ones."""
    return batch.data.logits(floor)


def _parts(z: Array) -> Iterator[slice]:
    """Parts of logits ``[N, C, ...]`` that fit the cache, and of which every thread gets some."""
    return row_slices(len(z), math.prod(z.shape[1:]), max(PARTS[0], min(PARTS[1], z.size // 4)))


def map_rows(work: Callable[[Doubles], R], z: Array) -> Iterator[R]:
    """The result of ``work`` for parts of logits ``[N, C, ...]`` as rows ``[n, C]``, on all cores, in order."""

    def convert(part: slice) -> R:
        rows = class_rows(z[part])
        check_finite(rows)
        return work(rows.astype(np.float64))

    return in_threads(convert, _parts(z))


class Stream:
    """Logits ``[n, C]`` and labels ``[n]`` to fit on, checked and in parts, as often as they are asked for.

    Args:
        logits: ``[N, C]`` or ``[N, C, ...]``, or predictions, which bring their labels along and may be on disk.
        labels: ``[N]`` or ``[N, ...]`` whole numbers.
        ignore_index: a label that counts nowhere.

    Attributes:
        num_classes: C.
        rows: n, of which some may not count.
        passes: how often all of them have been read.
        floor: what replaces smaller probabilities before the logarithm is taken; see `Digits`.
    """

    def __init__(self, logits: Any, labels: Any = None, *, ignore_index: int | None = None) -> None:
        self.passes, self.floor = 0, FLOOR
        self.temperature: Any = None  # a fitted `TemperatureScaling`, for all calibrators that begin with one
        self._wide = False
        if isinstance(logits, Predictions):
            _check_fittable(logits, labels)
            self._source: Predictions | Pair = logits
            self.num_classes = int(logits.num_classes)
            self.floor = logits.data_type.find_floor(logits)
            self.rows = len(logits) * math.prod(logits._store.schema.shape_of("labels"))
            self.ignore_index = logits.ignore_index if ignore_index is None else ignore_index
            return
        if labels is None:
            raise ValueError("labels are needed to fit: give logits and labels, or Predictions, which hold both")
        z, (y, _) = as_logits(logits), as_numpy("labels", labels)
        shape = [z.shape[0], *z.shape[2:]]
        if list(y.shape) != shape or y.dtype.kind not in "iu":
            raise ValueError(f"labels must be whole numbers {shape}, got {y.dtype} {list(y.shape)}")
        self._source, self.num_classes, self.rows, self.ignore_index = (z, y), z.shape[1], y.size, ignore_index

    def map(self, work: Callable[[Array, Ints], R], *, threaded: bool = True) -> Iterator[R]:
        """The result of ``work`` for parts of the logits and labels that fit the cache, on all cores, in order.

        The parts, and with them how sums are rounded, do not depend on the number of threads. ``threaded`` is False
        for work that multiplies matrices, which the linear algebra library does on all cores itself.
        """
        count, wide = 0, self._wide
        spread = in_threads if threaded else map
        for z, y in self._batches():
            task = partial(self._work, work, z, y)
            for rows, is_wide, results in spread(task, _parts(z)):
                count += rows
                wide |= is_wide
                yield from results
        if not count:
            raise self._nothing()
        self._wide = wide
        self.passes += 1

    def total(self, work: Callable[[Array, Ints], tuple[Any, ...]], *, threaded: bool = True) -> list[Any]:
        """What ``work`` gives for the parts, added up place by place."""
        totals: list[Any] = []
        for part in self.map(work, threaded=threaded):
            totals = [total + more for total, more in zip(totals, part, strict=True)] if totals else list(part)
        return totals

    def sample(self, rows: int) -> Pair:
        """``rows`` rows or up to twice as many, spread over the data in memory, or over the first batch of a file."""
        for z, y in self._batches():
            counts = np.ones(len(y), np.bool_) if self.ignore_index is None else y != self.ignore_index
            units = np.flatnonzero(counts.reshape(len(y), -1).any(1))
            units = units[:: max(1, len(units) * (y.size // len(y)) // rows)]
            if len(units):
                z, y = self._counted(z[units], y[units])
                self._check(z, y)
                step = max(1, len(y) // rows)
                return z[::step], y[::step]
        raise self._nothing()

    def _nothing(self) -> ValueError:
        return ValueError(f"labels must not all be ignored, got {self.ignore_index} everywhere")

    def _batches(self) -> Iterator[Pair]:
        if isinstance(self._source, Predictions):
            return ((logits_of(batch, self.floor), batch.labels) for batch in self._source.batches())
        return iter([self._source])

    def _work(self, work: Callable[[Array, Ints], R], z: Array, y: Array, rows: slice) -> tuple[int, bool, list[R]]:
        """How many of the rows count, whether they are computed with in float64 for their size, and the results."""
        z, y = self._counted(z[rows], y[rows])
        if not len(y):
            return 0, False, []
        wide = self._wide or (not self.passes and self._check(z, y) > WIDE)
        z = z.astype(np.float64) if wide else z
        return len(y), wide, [work(z[part], y[part]) for part in row_slices(len(y), self.num_classes, PARTS[1])]

    def _counted(self, z: Array, y: Array) -> Pair:
        """One row per position whose label counts."""
        z, y = class_rows(z), y.reshape(-1).astype(np.int64, copy=False)
        counts = np.ones(1, np.bool_) if self.ignore_index is None else y != self.ignore_index
        return (z, y) if counts.all() else (z[counts], y[counts])

    def _check(self, z: Array, y: Ints) -> float:
        """Raise if a logit or a label is not allowed; gives the largest absolute value."""
        size = check_finite(z)
        low, high = int(y.min()), int(y.max())
        if low < 0 or high >= self.num_classes:
            allowed = f"0..{self.num_classes - 1}" + ("" if self.ignore_index is None else f" or {self.ignore_index}")
            raise ValueError(f"labels must lie in {allowed}, got {low if low < 0 else high}")
        return size


def _check_fittable(predictions: Predictions, labels: Any) -> None:
    if labels is not None:
        raise ValueError("the predictions hold labels already: leave out the argument labels")
    if predictions.split == "test":
        raise ValueError("nothing is fitted on test data: these predictions are marked split='test'")
    if not predictions.labelled:
        raise ValueError("a fit needs labels, and these predictions have none")
    if not predictions.data_type.has_classes:
        raise ValueError("a fit needs logits or probabilities of every class, got confidences alone")
    refuse_weights(predictions, "a fit")


class Parameters:
    """Parameters as scikit-learn has them: ``__init__`` stores what it takes under its name and does nothing else.

    Not scikit-learn's ``BaseEstimator``, because importing that takes four times as long as all of this package.
    """

    @classmethod
    def _names(cls) -> list[str]:
        return [name for name in inspect.signature(cls.__init__).parameters if name != "self"]

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The parameters by name."""
        return {name: getattr(self, name) for name in self._names()}

    def set_params(self, **parameters: Any) -> Self:
        """Change parameters by name; returns self."""
        names = self._names()
        for name, value in parameters.items():
            if name not in names:
                has = ", ".join(names) or "none"
                raise ValueError(f"{type(self).__name__} has no parameter {name!r}, it has {has}")
            setattr(self, name, value)
        return self

    def _check_fitted(self, learned: str) -> None:
        if not hasattr(self, learned):
            name = type(self).__name__
            raise ValueError(f"{name} is not fitted: call fit with held-out logits and labels first")

    def __sklearn_tags__(self) -> Any:
        """What scikit-learn's pipelines ask for; nobody else calls it."""
        from sklearn.utils import Tags, TargetTags, TransformerTags

        return Tags(estimator_type=None, target_tags=TargetTags(required=True), transformer_tags=TransformerTags())

    def __repr__(self) -> str:
        defaults = {name: p.default for name, p in inspect.signature(type(self)).parameters.items()}
        changed = [f"{k}={v!r}" for k, v in self.get_params().items() if repr(v) != repr(defaults[k])]
        return f"{type(self).__name__}({', '.join(changed)})"


class Calibrator(Parameters, ABC):
    """A map of logits, fitted on held-out data, whose softmax gives calibrated probabilities.

    A method says how it is fitted (`_fit`), what it learned (`_state`, `_restore`) and its formula (`apply`); the rest
    follows: `transform` and `predict_proba` here, policies and their ONNX graphs elsewhere.

    Attributes:
        n_classes_: C of the fit.
        passes_: how many passes over the logits the fit took.
        floor_: what replaces smaller probabilities, where predictions hold probabilities; it depends on how those of
            the fit were rounded, and on whether some are 0.
    """

    #: What a policy's file calls the method.
    name: ClassVar[str]
    #: What a reader knows it by.
    title: ClassVar[str]
    #: A learned attribute, which exists once the calibrator is fitted.
    learned: ClassVar[str]

    n_classes_: int
    passes_: int
    floor_: float

    @property
    def keeps_order(self) -> bool:
        """Whether the predicted class is always that of the logits."""
        return False

    def fit(self, logits: Any, labels: Any = None, *, ignore_index: int | None = None) -> Self:
        """Fit on held-out data; returns self.

        Args:
            logits: ``[N, C]``, for segmentation ``[N, C, ...]``; or `Predictions`, which may be larger than memory.
            labels: ``[N]`` or ``[N, ...]``; none with predictions, which hold them.
            ignore_index: a label that counts nowhere; predictions know theirs.
        """
        data = logits if isinstance(logits, Stream) else Stream(logits, labels, ignore_index=ignore_index)
        for name in [name for name in vars(self) if name.endswith("_")]:
            delattr(self, name)
        self.n_classes_, self.floor_ = data.num_classes, data.floor
        before = data.passes
        self._fit(data)
        self.passes_ = data.passes - before
        return self

    @abstractmethod
    def _fit(self, data: Stream) -> None:
        """Learn from the data."""

    @abstractmethod
    def apply(self, ops: Ops[V], z: V) -> V:
        """The formula: logits ``[n, C]`` to logits whose softmax is calibrated."""

    def state(self) -> dict[str, Any]:
        """What was learned, as numbers and lists of numbers that JSON holds exactly."""
        self._check_fitted(self.learned)
        return self._state()

    def restore(self, state: Mapping[str, Any], num_classes: int) -> None:
        """Take over what another calibrator's `state` gave, checked."""
        self._restore(state, num_classes)
        self.n_classes_, self.floor_ = num_classes, FLOOR

    @abstractmethod
    def _state(self) -> dict[str, Any]: ...

    @abstractmethod
    def _restore(self, state: Mapping[str, Any], num_classes: int) -> None: ...

    def transform(self, logits: Any) -> Any:
        """Logits whose softmax gives the calibrated probabilities, of the kind and precision that came.

        Predictions become predictions, in memory; what they say about the samples stays.
        """
        if isinstance(logits, Predictions):
            return self._transform_predictions(logits)
        return self._convert(logits, lambda calibrated: calibrated)

    def fit_transform(self, logits: Any, labels: Any = None) -> Any:
        """Fit, then transform the same data, as scikit-learn's pipelines do."""
        return self.fit(logits, labels).transform(logits)

    def predict_proba(self, logits: Any) -> Any:
        """The calibrated probabilities, ``[N, C]`` or ``[N, C, ...]``, of the kind and precision that came."""
        if isinstance(logits, Predictions):
            raise ValueError("predict_proba takes arrays; transform takes Predictions and returns Predictions")
        return self._convert(logits, lambda calibrated: softmax(NumpyOps(), calibrated))

    def _convert(self, logits: Any, finish: Callable[[Array], Array]) -> Any:
        """The formula, in float64, and then ``finish``, in the precision that came."""
        self._check_fitted(self.learned)
        z = as_logits(logits)
        if z.shape[1] != self.n_classes_:
            raise ValueError(f"logits must have the {self.n_classes_} classes of the fit, got {z.shape[1]}")
        parts = map_rows(lambda rows: finish(self.apply(NumpyOps(), rows).astype(z.dtype)), z)
        rows = np.concatenate(list(parts)).reshape(len(z), -1, z.shape[1])
        return as_kind_of(logits, np.moveaxis(rows, 1, 2).reshape(z.shape), keep_precision=True)

    def _transform_predictions(self, predictions: Predictions) -> Predictions:
        if not predictions.labelled:
            raise ValueError("predictions without labels cannot be rebuilt: transform their logits")
        self._check_fitted(self.learned)
        parts = [self.transform(logits_of(batch, self.floor_)) for batch in predictions.batches()]
        return replace_data(predictions, "logits", np.concatenate(parts))


def read_numbers(
    state: Mapping[str, Any], key: str, shape: tuple[int | None, ...], *, low: float = -MOST, high: float = MOST
) -> Any:
    """An array out of a `state`: float64 from ``low`` to ``high`` of the given shape, in which None is any length."""
    if key not in state:
        raise ValueError(f"{key} is missing")
    if not _is_numeric(state[key]):
        raise ValueError(f"{key} must be numbers, got {str(state[key])[:40]}")
    try:
        array = np.asarray(state[key], dtype=np.float64)
    except OverflowError:
        raise ValueError(f"{key} must lie between {low:g} and {high:g}, got a number that is too large") from None
    except (TypeError, ValueError):
        raise ValueError(f"{key} must be numbers in rows of one length") from None
    fits = array.ndim == len(shape) and all(b is None or a == b for a, b in zip(array.shape, shape, strict=True))
    if not fits or not np.isfinite(array).all():
        requirement = "a finite number" if not shape else f"finite numbers {['any' if n is None else n for n in shape]}"
        raise ValueError(f"{key} must be {requirement}, got {list(array.shape) if not fits else 'NaN or infinity'}")
    outside = array[(array < low) | (array > high)]
    if len(outside):
        raise ValueError(f"{key} must lie between {low:g} and {high:g}, got {outside[0]:g}")
    return array


def _is_numeric(value: Any) -> bool:
    """Whether a value is a number, or lists of numbers."""
    if isinstance(value, list):
        return set(map(type, value)) <= {int, float} or all(map(_is_numeric, value))  # the first is quick
    return isinstance(value, int | float) and not isinstance(value, bool)
