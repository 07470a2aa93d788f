"""What is asked of a fit, read and checked: the promise, the prediction sets, and whether all of it fits together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from calibrant._validation import check_flag, check_number, did_you_mean, listing, short, shorten
from calibrant.predictions import Predictions, check_group
from calibrant.selective.promise import Promise
from calibrant.selective.scores import FORMULAS
from calibrant.selective.sets import SetTarget
from calibrant.selective.split import FEWEST_FOR_CHOICE, share_for_choice
from calibrant.selective.thresholds.risk import check_open_share
from calibrant.selective.thresholds.samples import ThresholdTarget

SPELLINGS = "precision=CLASS:SHARE, recall=CLASS:SHARE or expected-risk:SHARE"
LARGEST_COST = 1e9
MOST_COSTED = 1000  # classes of a cost matrix


@dataclass(frozen=True, eq=False)
class FitRequest:
    """What is asked of a fit, checked: the arguments of `Policy.fit`, those of promise and sets put together."""

    target: ThresholdTarget
    promise: Promise
    sets: SetTarget | None
    calibrator: str
    score: str
    centre: bool | None
    group: str | None
    seed: int

    @property
    def is_closed(self) -> bool:
        """Whether calibrator and score are given, so that nothing is left to choose."""
        return self.calibrator == "none" and self.score in FORMULAS

    def has_choice(self, samples: int) -> bool:
        """Whether calibrator or score are chosen: of few samples, only where something else than MSP is asked for."""
        is_default = self.calibrator in ("auto", "none") and self.score in ("auto", "msp")
        return not self.is_closed and (samples >= FEWEST_FOR_CHOICE or not is_default)

    def share_for_choice(self, predictions: Predictions) -> float:
        """The share of the samples that choose, or only plan the tests; 0 where all are for the threshold."""
        samples, has_sets = len(predictions), self.sets is not None and self.sets.has_choice
        chooses = self.has_choice(samples) or predictions.kind == "segmentation" or has_sets
        # Over images the tests are always planned on others, and with samples enough everywhere.
        is_planned = self.target.is_planned and self.promise.of not in ("recall", "expected-risk")
        if chooses or self.promise.of == "cost" or (samples >= FEWEST_FOR_CHOICE and is_planned):
            return share_for_choice(samples, plans_only=not chooses)
        return 0.0


def read_promise(
    predictions: Predictions,
    promise: str | Sequence[str] | None = None,
    by_class: bool = False,
    costs: Any = None,
    target_cost: float | None = None,
    abstain_cost: float | None = None,
) -> Promise:
    """The promise asked for; that of a risk where nothing else is."""
    check_flag("by_class", by_class)
    arguments = {"promise": promise is not None, "by_class": by_class, "costs": costs is not None}
    names = [name for name, is_given in arguments.items() if is_given]
    if len(names) > 1:
        raise ValueError(f"{names[0]} and {names[1]} are different promises: give one of them")
    for name, value in (("target_cost", target_cost), ("abstain_cost", abstain_cost)):
        if value is not None and costs is None:
            raise ValueError(f"{name} goes with a cost matrix: give costs")
    if not names:
        return Promise()
    if predictions.kind == "segmentation":
        raise ValueError(f"{names[0]} is for classification; for segmentation the risk of all pixels is promised")
    if by_class:
        return Promise(by_class=True)
    classes = int(predictions.num_classes)
    if promise is not None:
        return parse_promises(promise, predictions.class_names, classes)
    matrix = check_costs(costs, classes)
    highest = float(matrix.max())
    if target_cost is None:
        raise ValueError(f"costs need target_cost, the mean cost of answers allowed: between 0 and {highest:g}")
    target = check_number("target_cost", target_cost, 0.0, highest)
    check_open_share("target_cost over the highest cost", target / highest)
    if abstain_cost is not None:
        abstain_cost = check_number("abstain_cost", abstain_cost, 0.0, LARGEST_COST)
    return Promise("cost", target=target, costs=tuple(map(tuple, matrix.tolist())), abstain_cost=abstain_cost)


def check_costs(costs: Any, classes: int) -> Any:
    """A cost matrix ``[C, C]`` of numbers that are at least 0, some of them above."""
    try:
        matrix = np.asarray(costs, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError(f"costs must be numbers [{classes}, {classes}], got {short(costs)}") from None
    if classes > MOST_COSTED:
        raise ValueError(f"costs are for at most {MOST_COSTED:,} classes, got {classes:,}")
    if matrix.shape != (classes, classes):
        raise ValueError(f"costs must be [{classes}, {classes}], by label and answer, got {list(matrix.shape)}")
    if not ((matrix >= 0) & (matrix <= LARGEST_COST)).all() or not matrix.max() > 0:
        raise ValueError(f"costs must lie between 0 and {LARGEST_COST:g}, some above 0")
    return matrix


def check_compatible(
    promise: Promise, target_risk: float | None, target_coverage: float | None, method: str, score: str, group: Any
) -> None:
    """Raise unless the other arguments of a fit go with the promise."""
    if promise.is_plain:
        return
    title = "thresholds by class" if promise.by_class else f"a promise of {promise.of.replace('-', ' ')}"
    if target_coverage is not None:
        raise ValueError(f"target_coverage does not go with {title}, which decides how much is answered")
    if target_risk is not None and not promise.by_class:
        raise ValueError(f"target_risk does not go with {title}: it says itself what is promised")
    if method not in ("best", "fixed-sequence" if promise.of in ("risk", "precision", "cost") else "best"):
        raise ValueError(f"{title} has a test of its own, got method {method!r}")
    if score != "auto" and promise.score is not None:
        raise ValueError(f"{title} ranks answers by the {promise.score.words}, got score {score!r}")
    if group is not None and not promise.has_class_thresholds:
        raise ValueError(f"thresholds by group are for a risk or a precision, got {title}")


def parse_promises(texts: str | Sequence[str], class_names: Sequence[str] | None, num_classes: int) -> Promise:
    """A promise as people write it: several of precision, or one of another kind.

    Example:
        >>> from calibrant.selective.policy.request import parse_promises
        >>> parse_promises("precision=dog:0.95", ("cat", "dog"), 2).shares
        ((1, 0.95),)
        >>> parse_promises("expected-risk:0.05", None, 10).target
        0.05
    """
    entries = list(texts) if isinstance(texts, list | tuple) else [texts]
    promises = [_parse(text, class_names, num_classes) for text in entries]
    if not promises:
        raise ValueError(f"promise must be {SPELLINGS}, got nothing")
    if len(promises) == 1:
        return promises[0]
    if any(promise.of != "precision" for promise in promises):
        raise ValueError("several promises at once are for the precision of different classes")
    shares = tuple(share for promise in promises for share in promise.shares)
    if len(dict(shares)) < len(shares):
        raise ValueError("the precision of a class is promised twice")
    return Promise("precision", shares=shares)


def _parse(text: Any, class_names: Sequence[str] | None, num_classes: int) -> Promise:
    head, colon, digits = text.rpartition(":") if isinstance(text, str) else ("", "", "")
    kind, equals, name = head.partition("=")
    kind = kind.strip()
    if not colon or kind not in ("precision", "recall", "expected-risk") or bool(equals) != (kind != "expected-risk"):
        raise ValueError(f"promise must be {SPELLINGS}, got {short(text)}")
    try:
        share = float(digits.strip().removesuffix("%")) / (100 if digits.strip().endswith("%") else 1)
    except ValueError:
        raise ValueError(f"promise {short(text)} must end in a share between 0 and 1, got {digits[:40]!r}") from None
    share = check_open_share(f"the share of {short(text)}", share)
    if kind == "expected-risk":
        return Promise(kind, target=share)
    name, names = name.strip(), list(class_names or map(str, range(num_classes)))
    if name not in names:
        hint = did_you_mean(name, names) or f"; there are {listing(names)}"
        raise ValueError(f"no class {shorten(name)!r}{hint}")
    return Promise(kind, shares=((names.index(name), share),))


def read_set_target(
    predictions: Predictions,
    level: float | None,
    method: str,
    penalty: float | None,
    free_ranks: int | None,
    randomised: bool,
    seed: int,
) -> SetTarget | None:
    """The prediction sets asked for, checked."""
    if level is None:
        if (method, penalty, free_ranks, randomised) != ("lac", None, None, False):
            raise ValueError("set_method and the other settings of sets go with a level: give sets, for example 0.95")
        return None
    target = SetTarget(level, method, penalty, free_ranks, randomised, seed)
    if predictions.kind == "segmentation":
        raise ValueError("prediction sets are for classification: pixels of an image are not exchangeable samples")
    return target


def check_fittable(predictions: Predictions) -> None:
    """Raise unless a policy can be fitted on these predictions."""
    if not isinstance(predictions, Predictions):
        raise ValueError(
            f"a policy is fitted on Predictions, got {type(predictions).__name__}: Predictions.open reads a file, "
            "Predictions.from_logits takes arrays"
        )
    if predictions.split == "test":
        raise ValueError("nothing is fitted on test data: these predictions are marked split='test'")
    if not predictions.labelled:
        raise ValueError("a policy is fitted on labelled predictions, and these have no labels")
    if predictions.kind == "tokens":
        raise ValueError("a policy is for independent samples or for images, got tokens, for which there is none yet")
    if predictions.holds == "confidence":
        raise ValueError("a policy needs logits or probabilities of every class, got confidences alone")


def check_arguments(predictions: Predictions, target: ThresholdTarget, score: str, group: str | None) -> None:
    """Raise unless group, score and method go with the predictions and the target."""
    if target.coverage is not None and group is not None:
        raise ValueError("thresholds by group are for a target risk, a target coverage has one for all")
    if group is not None:
        check_group(predictions, group)
    if predictions.kind == "segmentation" and group is not None:
        raise ValueError("thresholds by group are for classification; for segmentation there is one for all")
    if predictions.holds == "probabilities" and score == "energy":
        raise ValueError("energy needs logits: for probabilities, which sum to 1, it is always 0")
    if predictions.kind == "segmentation" and target.method == "sgr":
        raise ValueError("sgr assumes independent samples, which pixels are not; use best or fixed-sequence")
