"""What every calibrator is: parameters in ``__init__``, ``fit``, ``transform``, and one formula for all uses."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Self, TypeVar

import numpy as np

from calibrant._arrays import Array, as_numpy, cache_chunks, class_rows, given_back
from calibrant._validation import as_logits, check_finite
from calibrant.posthoc.ops import NumpyOps, Ops
from calibrant.posthoc.stream import Stream, logits_of
from calibrant.predictions import Predictions

V = TypeVar("V")

#: Between what the numbers of a policy lie: of logits up to `LARGEST_LOGIT` they give finite ones.
LEAST, MOST = 1e-50, 1e50


class Parameters:
    """Parameters as scikit-learn has them: ``__init__`` stores what it takes under its name and does nothing else."""

    @classmethod
    def _names(cls) -> list[str]:
        return [name for name in inspect.signature(cls.__init__).parameters if name != "self"]

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The parameters by name."""
        return {name: getattr(self, name) for name in self._names()}

    def set_params(self, **parameters: Any) -> Self:
        """Change parameters by name; returns self."""
        known = self._names()
        for name, value in parameters.items():
            if name not in known:
                raise ValueError(
                    f"{type(self).__name__} has no parameter {name!r}, it has {', '.join(known) or 'none'}"
                )
            setattr(self, name, value)
        return self

    def _forget(self) -> None:
        """Drop what an earlier fit learned."""
        for name in [name for name in vars(self) if name.endswith("_")]:
            delattr(self, name)

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

    A method says how it is fitted (`_fit`), what it learned (`state`, `restore`) and its formula (`apply`); the rest
    follows: `transform` and `predict_proba` here, policies and their ONNX graphs elsewhere.
    """

    #: What a policy's file calls the method.
    name: ClassVar[str]
    #: One learned attribute, which is there once the calibrator is fitted.
    learned: ClassVar[str]

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
        data = Stream(logits, labels, ignore_index=ignore_index)
        self._forget()
        self.n_classes_ = data.num_classes
        self._fit(data)
        return self

    @abstractmethod
    def _fit(self, data: Stream) -> None:
        """Learn from the data."""

    @abstractmethod
    def apply(self, ops: Ops[V], z: V) -> V:
        """The formula: logits ``[n, C]`` to logits whose softmax is calibrated."""

    @abstractmethod
    def state(self) -> dict[str, Any]:
        """What was learned, as numbers and lists of numbers that JSON holds exactly."""

    @abstractmethod
    def restore(self, state: Mapping[str, Any], num_classes: int) -> None:
        """Take over what another calibrator's `state` gave, checked."""

    def transform(self, logits: Any) -> Any:
        """Logits whose softmax gives the calibrated probabilities, of the kind and precision that came.

        Predictions become predictions, in memory; what they say about the samples stays.
        """
        if isinstance(logits, Predictions):
            return self._transformed(logits)
        self._check_fitted(self.learned)
        z = as_logits(logits)
        if z.shape[1] != self.n_classes_:
            raise ValueError(f"logits must have the {self.n_classes_} classes of the fit, got {z.shape[1]}")
        parts = []
        for part in cache_chunks(z):
            check_finite(part)
            rows = self.apply(NumpyOps(), class_rows(part).astype(np.float64)).astype(z.dtype)
            parts.append(rows if z.ndim == 2 else _unrowed(rows, part.shape))
        return given_back(np.concatenate(parts), logits, z.dtype.type)

    def fit_transform(self, logits: Any, labels: Any = None) -> Any:
        """Fit, then transform the same data, as scikit-learn's pipelines do."""
        return self.fit(logits, labels).transform(logits)

    def predict_proba(self, logits: Any) -> Any:
        """The calibrated probabilities, ``[N, C]`` or ``[N, C, ...]``, of the kind and precision that came."""
        found = self.transform(logits)
        if isinstance(found, Predictions):
            raise ValueError("predict_proba takes arrays: transform gives predictions for predictions")
        z, _ = as_numpy("logits", found)
        exps = np.exp(z - z.max(1, keepdims=True))
        return given_back(exps / exps.sum(1, keepdims=True), found, z.dtype.type)

    def _transformed(self, given: Predictions) -> Predictions:
        if given.holds == "confidence":
            raise ValueError("a calibrator takes logits or probabilities of every class, got confidences alone")
        parts = []
        for batch in given.batches():
            parts.append(self.transform(logits_of(batch)))
        if not given.labelled:
            raise ValueError("predictions without labels cannot be made anew: transform their logits")
        columns = {"ids": given.ids, "groups": given.groups or None, "objectness": given.objectness}
        facts: dict[str, Any] = {
            name: getattr(given, name) for name in ("class_names", "kind", "ignore_index", "split")
        }
        return Predictions.from_logits(np.concatenate(parts), given.labels, **columns, **facts)


def _unrowed(rows: Array, shape: tuple[int, ...]) -> Array:
    """Rows ``[n, C]`` back in the layout ``[N, C, ...]``."""
    return np.moveaxis(rows.reshape(shape[0], -1, shape[1]), 1, 2).reshape(shape)


def numbers(
    state: Mapping[str, Any], key: str, shape: tuple[int | None, ...], *, low: float = -MOST, high: float = MOST
) -> Any:
    """An array out of a `state`: float64 from ``low`` to ``high`` of the given shape, in which None is any length.

    Example:
        >>> from calibrant.posthoc.base import numbers
        >>> numbers({"bias": [0.5, 1]}, "bias", (2,))
        array([0.5, 1. ])
    """
    if key not in state:
        raise ValueError(f"{key} is missing")
    if not _plain(state[key]):
        raise ValueError(f"{key} must be numbers, got {str(state[key])[:40]}")
    try:
        found = np.asarray(state[key], dtype=np.float64)
    except OverflowError:
        raise ValueError(f"{key} must lie between {low:g} and {high:g}, got a number that is too large") from None
    except (TypeError, ValueError):
        raise ValueError(f"{key} must be numbers in rows of one length") from None
    fits = found.ndim == len(shape) and all(b is None or a == b for a, b in zip(found.shape, shape, strict=True))
    if not fits or not np.isfinite(found).all():
        asked = "a finite number" if not shape else f"finite numbers {['any' if n is None else n for n in shape]}"
        raise ValueError(f"{key} must be {asked}, got {list(found.shape) if not fits else 'NaN or infinity'}")
    outside = found[(found < low) | (found > high)]
    if len(outside):
        raise ValueError(f"{key} must lie between {low:g} and {high:g}, got {outside[0]:g}")
    return found


def _plain(value: Any) -> bool:
    """Whether a value is a number, or lists of numbers."""
    if isinstance(value, list):
        return set(map(type, value)) <= {int, float} or all(map(_plain, value))  # the first is quick, for long lists
    return isinstance(value, int | float) and not isinstance(value, bool)
