"""`SelectiveClassifier`: a fitted scikit-learn classifier that answers or abstains, with a promised error rate.

The classifier is used as it is, never fitted and never changed: `fit` takes data that it was not trained on, and fits a
`Policy` on its predictions.
"""

from __future__ import annotations

from calibrant.base.extras import needs_sklearn  # noqa: F401

# isort: split

import warnings
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, MetaEstimatorMixin, clone
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.utils import check_consistent_length, column_or_1d, get_tags
from sklearn.utils.validation import check_is_fitted

from calibrant.base.arrays import Array
from calibrant.base.checks import check_finite, listing, short
from calibrant.base.extras import need
from calibrant.metrics import Doubles, accuracy
from calibrant.policy import Decisions, Policy, decision_formula
from calibrant.posthoc import NumpyOps
from calibrant.predictions import Predictions, widen

if TYPE_CHECKING:
    from calibrant.export import Exported

__all__ = ["SelectiveClassifier"]

OPSETS = {"": 18, "ai.onnx.ml": 3}


class SelectiveClassifier(MetaEstimatorMixin, ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A fitted classifier that gives a label, or an abstain value where it may be wrong too often.

    Args:
        estimator: a fitted classifier with ``predict_proba``; or with ``decision_function``, whose largest value must
            be that of the class that ``predict`` gives. A clone shares it, as it does a ``FrozenEstimator``.
        target_risk: the error rate allowed among answers.
        confidence: of the guarantee: P(risk > target_risk) <= 1 - confidence.
        abstain: what `predict` gives instead of a label. None stands for -1 where the classes are numbers, which must
            not be a class then; for other classes it is None itself, in an array of objects.
        method: how the threshold is found, see `Policy.fit`, as for the arguments that follow.
        calibrator: ``"auto"``, ``"none"`` or a calibrator's name.
        confidence_score: what ranks the answers, the ``score`` of `Policy.fit`: ``"auto"`` or a score's name.
        seed: of the split into samples for the choice of calibrator and score, and samples for the threshold.

    Attributes:
        estimator_: the classifier that `fit` used, the same object as ``estimator``.
        policy_: the fitted `Policy`; ``policy_.summary`` says what it promises.
        classes_: those of the classifier.
        abstain_: the abstain value in use.
        n_features_in_: of the classifier, where it has it; likewise ``feature_names_in_``.

    Example:
        >>> from sklearn.datasets import make_classification
        >>> from sklearn.linear_model import LogisticRegression
        >>> from calibrant.sklearn import SelectiveClassifier
        >>> X, y = make_classification(3000, flip_y=0.1, random_state=0)
        >>> model = LogisticRegression().fit(X[:1000], y[:1000])
        >>> selective = SelectiveClassifier(model, target_risk=0.11).fit(X[1000:2000], y[1000:2000])
        >>> sorted(set(selective.predict(X[2000:]).tolist()))
        [-1, 0, 1]
        >>> selective.score(X[2000:], y[2000:]) > model.score(X[2000:], y[2000:])
        True
    """

    def __init__(
        self,
        estimator: Any,
        *,
        target_risk: float = 0.05,
        confidence: float = 0.95,
        abstain: Any = None,
        method: str = "best",
        calibrator: str = "auto",
        confidence_score: str = "auto",
        seed: int = 0,
    ) -> None:
        self.estimator = estimator
        self.target_risk = target_risk
        self.confidence = confidence
        self.abstain = abstain
        self.method = method
        self.calibrator = calibrator
        self.confidence_score = confidence_score
        self.seed = seed

    def fit(self, X: Any, y: Any) -> SelectiveClassifier:
        """Fit the policy on data that the classifier was not trained on; the classifier stays as it is.

        Args:
            X: ``[N, features]``, whatever the classifier takes.
            y: ``[N]`` labels of the classifier's classes.
        """
        estimator = _check_estimator(self.estimator)
        classes = np.asarray(estimator.classes_)
        abstain = _choose_abstain(self.abstain, classes)
        y = column_or_1d(y, warn=True)
        check_consistent_length(X, y)
        labels = _positions(y, classes)
        if (labels < 0).any():
            unseen = sorted(set(map(str, y[labels < 0].tolist())))
            raise ValueError(
                f"y has labels that the estimator was not fitted on: {listing(unseen, 5)}; its classes are "
                f"{listing(classes.tolist(), 5)}"
            )
        holds, values = _respond(estimator, X)
        if holds == "logits":
            _check_scores(values, _positions(np.asarray(estimator.predict(X)), classes))
        make = Predictions.from_logits if holds == "logits" else Predictions.from_probabilities
        policy = Policy.fit(
            make(values, labels, class_names=[str(name) for name in classes.tolist()]),
            self.target_risk,
            self.confidence,
            method=self.method,  # type: ignore[arg-type]  # Policy.fit checks it
            calibrator=self.calibrator,
            score=self.confidence_score,
            seed=self.seed,
        )
        if policy.abstains:
            warnings.warn(f"the classifier never answers. {policy.summary}", UserWarning, stacklevel=2)
        self.estimator_, self.policy_, self.classes_, self.abstain_ = estimator, policy, classes, abstain
        for name in ("n_features_in_", "feature_names_in_"):
            if hasattr(estimator, name):
                setattr(self, name, getattr(estimator, name))
            elif name in vars(self):  # of an earlier fit
                delattr(self, name)
        return self

    def decide(self, X: Any) -> Decisions[Any]:
        """The class of each sample, its calibrated probability, and whether to answer, ``[N]`` each."""
        values = self._values(X)
        labels, confidence, accept = self.policy_.decide(values)
        return Decisions(self.classes_[labels], confidence, accept)

    def predict(self, X: Any) -> Array:
        """The class of each sample, or the abstain value, ``[N]``.

        The type is that of the classes, as wide as the abstain value needs it; objects where they do not mix.
        """
        labels, _, accept = self.decide(X)
        answers: Array = labels.astype(_answer_dtype(self.classes_, self.abstain_))
        answers[~accept] = self.abstain_
        return answers

    def predict_proba(self, X: Any) -> Doubles:
        """The calibrated probabilities ``[N, C]``, also of samples that are not answered."""
        values = np.asarray(self._values(X), np.float64)
        check_finite(values)
        return decision_formula(self.policy_, NumpyOps(), values).probabilities

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """The share of correct labels among the answers; 0.0 if nothing is answered.

        It says nothing about how many samples are answered, which is ``decide(X).accept.mean()``.

        Args:
            X: ``[N, features]``, whatever the classifier takes.
            y: ``[N]`` labels.
            sample_weight: ``[N]`` importance of each sample, at least 0; None if all count alike.
        """
        labels, _, accept = self.decide(X)
        y = column_or_1d(y, warn=True)
        check_consistent_length(labels, y)
        correct = _positions(y, self.classes_) == _positions(labels, self.classes_)
        if sample_weight is None:
            return accuracy(correct[accept]) if accept.any() else 0.0
        sample_weight = column_or_1d(sample_weight)
        check_consistent_length(labels, sample_weight)
        accuracy(correct, weight=sample_weight)  # checks all of them, those of samples without an answer too
        weight = sample_weight[accept]
        return accuracy(correct[accept], weight=weight) if weight.any() else 0.0

    def export(self, path: str | Path, X: Any) -> Exported:
        """Write classifier, calibration and decision as one ONNX graph; see `calibrant.export.export_onnx`.

        The graph gives the position of the class in ``classes_``, and whether to answer. It needs skl2onnx,
        and a classifier with ``predict_proba``.

        Args:
            path: the .onnx file to write.
            X: ``[N, features]`` numbers like those to come. On them the decisions in ONNX, which are made of float32
                features, are compared with those of `decide` before the file is written.
        """
        check_is_fitted(self)
        need("SelectiveClassifier.export", "export", "onnx", "onnxruntime", "skl2onnx")
        from skl2onnx import to_onnx

        from calibrant.export import export_onnx

        if self.policy_.takes != "probabilities":
            raise ValueError("export needs an estimator with predict_proba, this one has decision_function alone")
        try:
            inputs = np.asarray(X, np.float32)
        except (TypeError, ValueError):
            raise ValueError(
                "X must be an array of numbers; for other features convert the estimator with skl2onnx and pass it to "
                "calibrant.export.export_onnx with policy_"
            ) from None
        model = self.estimator_
        while isinstance(model, FrozenEstimator):
            model = model.estimator
        proto = to_onnx(model, inputs[:1], options={"zipmap": False}, target_opset=OPSETS)
        expected = self.policy_.decide(self._values(X))
        exported = export_onnx(self.policy_, path, onnx_model=proto, inputs=inputs, expected=expected)
        differing = sum(agreement.differing for agreement in exported.checks if agreement.against == "expected")
        if not differing:
            return exported
        remark = (
            f"In {differing} of {len(inputs)} samples the graph, in float32, answers differently from scikit-learn."
        )
        return replace(exported, remarks=(*exported.remarks, remark))

    def _values(self, X: Any) -> Array:
        """What the policy takes."""
        check_is_fitted(self)
        return _respond(self.estimator_, X)[1]

    def __sklearn_clone__(self) -> SelectiveClassifier:
        """An unfitted copy; a fitted classifier is shared, since a clone of it would be unfitted."""
        parameters = self.get_params(deep=False)
        shared = {"estimator": self.estimator} if _is_fitted(self.estimator) else {}
        return type(self)(**{name: clone(value, safe=False) for name, value in parameters.items()} | shared)

    def __sklearn_tags__(self) -> Any:
        """The classifier's own, as far as they concern its input and the number of classes."""
        tags, inner = super().__sklearn_tags__(), get_tags(self.estimator)
        tags.input_tags = inner.input_tags
        if inner.classifier_tags is not None:
            tags.classifier_tags.multi_class = inner.classifier_tags.multi_class
        return tags


def _is_fitted(estimator: Any) -> bool:
    try:
        check_is_fitted(estimator)
    except (NotFittedError, TypeError):
        return False
    return True


def _check_estimator(estimator: Any) -> Any:
    """The classifier, if it can be used as it is."""
    if isinstance(estimator, type) or not hasattr(estimator, "fit"):
        raise TypeError(f"estimator must be a fitted classifier, got {short(estimator)}")
    if not _is_fitted(estimator):
        raise NotFittedError(
            f"estimator must be fitted before SelectiveClassifier is, got an unfitted {type(estimator).__name__}: fit "
            "it on other data first, since the promise holds only on data that it was not trained on"
        )
    title = type(estimator).__name__
    classes = getattr(estimator, "classes_", None)
    if classes is None:
        raise ValueError(f"estimator must be a classifier with classes_, got {title}")
    if np.ndim(classes[0]) or len(classes) < 2:
        raise ValueError(
            f"estimator must give one label of two or more classes, got {title} with the classes {short(classes)}"
        )
    return estimator


def _respond(estimator: Any, X: Any) -> tuple[str, Array]:
    """``"probabilities"`` or ``"logits"``, and ``[N, C]`` of them."""
    if hasattr(estimator, "predict_proba"):
        return "probabilities", np.asarray(estimator.predict_proba(X))
    if not hasattr(estimator, "decision_function"):
        raise ValueError(
            f"estimator must have predict_proba or decision_function, {type(estimator).__name__} has neither: "
            "scikit-learn's CalibratedClassifierCV adds the former"
        )
    values, classes = np.asarray(estimator.decision_function(X)), len(estimator.classes_)
    if classes == 2 and values.ndim == 1:
        return "logits", widen("logits", values, 1)
    if values.shape[1:] != (classes,):
        raise ValueError(
            f"decision_function must give one value per class, [N, {classes}], got {list(values.shape)}: an SVC does "
            "with decision_function_shape='ovr'"
        )
    return "logits", values


def _check_scores(values: Array, predicted: Array) -> None:
    """Raise unless the largest value is that of the predicted class: pairs of three classes have three columns too."""
    differing = int((values.argmax(1) != predicted).sum())
    if differing:
        raise ValueError(
            f"the largest value of decision_function must be that of the predicted class, and is not for {differing} "
            f"of {len(predicted)} samples: an SVC needs decision_function_shape='ovr' and break_ties=True"
        )


def _positions(labels: Array, classes: Array) -> Array:
    """The position of each label in the classes, -1 where it is not among them; text never equals a number."""
    position_of = {name: i for i, name in enumerate(classes.tolist())}
    return np.array([position_of.get(label, -1) for label in labels.tolist()], np.int64)


def _choose_abstain(abstain: Any, classes: Array) -> Any:
    """The abstain value, which must not be a class."""
    if abstain is not None and np.ndim(abstain) != 0:
        raise ValueError(f"abstain must be a single value, got {short(abstain)}")
    names = classes.tolist()
    if abstain is None and classes.dtype.kind in "iuf":
        if -1 in names:
            raise ValueError("abstain must be given where -1 is a class: by default predict gives -1 for no answer")
        return -1
    if abstain in names:
        raise ValueError(f"abstain must not be a class, got {abstain!r} with the classes {listing(names, 5)}")
    return abstain


def _answer_dtype(classes: Array, abstain: Any) -> np.dtype[Any]:
    """A type that holds the classes and the abstain value as they are."""
    kinds = "iu", "f", "U"
    value = np.min_scalar_type(abstain) if isinstance(abstain, int) else np.asarray(abstain).dtype
    is_alike = any(classes.dtype.kind in kind and value.kind in kind for kind in kinds)
    is_whole = classes.dtype.kind == "f" and value.kind in "iu"
    return np.result_type(classes.dtype, value) if is_alike or is_whole else np.dtype(object)
