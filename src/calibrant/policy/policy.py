"""`Policy`: a calibrator, a score and a threshold, fitted together, that answer or abstain.

A policy is one frozen model: what it holds is what its file holds, and its validators are the only checks, of what is
read and of what was fitted alike. `formula` has what it computes, `fit` how it is made.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self, Unpack

import numpy as np
from pydantic import (
    Field,
    InstanceOf,
    PlainValidator,
    ValidationError,
    ValidationInfo,
    ValidatorFunctionWrapHandler,
    field_validator,
    model_validator,
)

from calibrant.base.arrays import Array
from calibrant.base.checks import Ints, differing_names
from calibrant.base.entries import NUMBER, Classes, Entries, OpenShare, Text, excerpt, must_be, refusal, without
from calibrant.base.files import json_value, parse_json, read_regular, written_aside
from calibrant.base.numbers import count, percent, round_percent, span, span_words
from calibrant.base.progress import Progress, silent
from calibrant.metrics import LARGE_ERROR, Doubles, Interval
from calibrant.policy.evidence import check_evidence, is_poor
from calibrant.policy.formula import Decisions, decide, decision_formula
from calibrant.policy.prediction_sets import predict_sets
from calibrant.posthoc import CALIBRATORS, Calibrator, NumpyOps
from calibrant.posthoc.scores import Score
from calibrant.predictions import FLOOR, LOCAL, PassEngine, Predictions, class_name, customary_positive
from calibrant.promises import Promise, Risk, Sets
from calibrant.promises.base import read_promise
from calibrant.promises.price import Answered, Price
from calibrant.promises.sets import PredictionSets
from calibrant.promises.split import FEWEST_FOR_CHOICE
from calibrant.promises.thresholds import ClassThreshold, Method, Threshold

if TYPE_CHECKING:
    from torch import nn

    from calibrant.policy.fit import Shortcuts
    from calibrant.policy.module import PolicyModule

FORMAT, VERSION = "calibrant.policy", 1
#: Entries of a file that are checked before the others, or follow from them.
FOR_READERS = ("format", "version", "calibrant", "summary", "how", "price", "checksum")
#: Entries of a file that must be there, even where they are null.
REQUIRED = ("class_names", "target_risk", "confidence", "group", "groups", "evidence")
LARGEST = 2**26  # bytes of a file
EXTREME = 1e4  # logits that every policy has a finite answer to

Takes = Annotated[Literal["logits", "probabilities"], must_be("one of logits, probabilities")]
Kind = Annotated[Literal["classification", "segmentation"], must_be("one of classification, segmentation")]
Position = Annotated[int, *NUMBER, Field(ge=0, le=1), must_be("0, 1 or null")]
Floor = Annotated[float, *NUMBER, Field(ge=FLOOR, le=0.5), must_be(f"a number from {FLOOR:g} to 0.5")]


def _read_calibrator(value: Any, info: ValidationInfo) -> Calibrator | None:
    """A calibrator by its name and state; one that was fitted must be one that can be read back."""
    if value is None:
        return None
    entries = {"name": value.name, **value.state()} if isinstance(value, Calibrator) else value
    if not isinstance(entries, dict):
        raise refusal(f"must be an object, got {excerpt(value)}")
    name = entries.get("name")
    if not isinstance(name, str) or name not in CALIBRATORS:
        raise ValueError(f"calibrator.name must be one of {', '.join(CALIBRATORS)}, got {excerpt(name)}")
    calibrator, state = CALIBRATORS[name](), {key: part for key, part in entries.items() if key != "name"}
    try:
        calibrator.restore(state, info.data.get("num_classes", 0))
        unknown = set(state) - set(calibrator.state())
    except ValueError as error:
        raise ValueError(f"calibrator: {error}") from None
    if unknown:
        raise ValueError(f"calibrator.{min(unknown)[:40]} is not known for {calibrator.name}")
    return value if isinstance(value, Calibrator) else calibrator


class Policy(Entries):
    """A classifier's last step: the class, its confidence, and whether to answer at all.

    Made by `Policy.fit` or `Policy.load`.

    Attributes:
        num_classes: how many logits a row must have.
        class_names: their names, or None.
        positive: the position of the positive class of two, to which a single column belongs; None if unknown.
        takes: ``"logits"`` or ``"probabilities"``, as the predictions it was fitted on.
        kind: ``"classification"`` or ``"segmentation"``.
        promise: what is promised: a risk, or something else.
        confidence: of the guarantee and of the limits.
        calibrator: fitted, or None where the logits are used as they are.
        score: what ranks predictions by confidence.
        threshold: where to accept; with groups or classes, that of all of them together, for information.
        group: name of the group column.
        groups: threshold by group, or None.
        class_thresholds: by predicted class, in every group if there are groups; or None.
        evidence: how it was chosen: the samples, the candidates and how each did.
        sets: the prediction sets that it gives besides, or None.
        floor: what replaces smaller probabilities, in a policy that takes probabilities; above 1e-30 where those of the
            fit were rounded, or some were 0.
    """

    takes: Takes
    kind: Kind
    num_classes: Classes = Field(alias="classes")
    class_names: tuple[Text, ...] | None
    positive: Position | None = None
    confidence: OpenShare = 0.95
    calibrator: Annotated[Calibrator | None, PlainValidator(_read_calibrator)]
    score: Score
    threshold: Threshold
    group: Text | None = None
    groups: dict[Text, Threshold] | None = None
    evidence: Annotated[Mapping[str, Any], PlainValidator(check_evidence)] = Field(default_factory=dict)
    floor: Floor = FLOOR
    sets: Annotated[PredictionSets | None, without("summary", "seen")] = None
    promise: InstanceOf[Promise] = Field(default_factory=Risk)
    class_thresholds: Annotated[tuple[ClassThreshold, ...] | None, without("name")] = None

    @classmethod
    def _document(cls) -> str:
        return f"a policy of version {VERSION}"

    def __eq__(self, other: object) -> bool:
        return self is other

    __hash__ = object.__hash__

    @classmethod
    def fit(
        cls,
        predictions: Predictions,
        promise: Promise | str | float | Sequence[Promise | str] | None = None,
        confidence: float = 0.95,
        *,
        by: str | None = None,
        sets: Sets | float | None = None,
        method: Method = "best",
        calibrator: str = "auto",
        score: str = "auto",
        centre: bool | None = None,
        repeats: Literal["first"] | None = None,
        seed: int = 0,
        progress: Progress = silent,
        engine: PassEngine = LOCAL,
        **shortcuts: Unpack[Shortcuts],
    ) -> Policy:
        """Choose calibrator and score by cross-fitting, then the threshold on samples that the choice did not see.

        A random fifth of the samples (a larger share of fewer than 250) is for the choice. A calibrator or score that
        does not help by more than its standard error is not used; where none does, the score is the plain MSP of the
        logits as they come. The other samples set the threshold: nothing was chosen on them, so the guarantee holds for
        the policy as a whole. Where calibrator and score are given, a tenth of the samples plans the tests.

        Args:
            predictions: held-out logits or probabilities with labels; those marked as test are refused.
            promise: what is to hold, `calibrant.promises.Risk` of 5% if left out: a promise, several of precision, the
                same as people write it (``"recall[cat] >= 0.9"``), or a number, which is a risk.
            confidence: of the guarantee: P(risk > target) <= 1 - confidence.
            by: a group column of the predictions: a threshold for every group, all of them guaranteed together; of
                classes, for every class in every group.
            sets: the prediction sets that the policy also gives, `calibrant.promises.Sets`, or their level alone: they
                hold the true class that often.
            method: how the threshold is found: ``"best"``, ``"fixed-sequence"``, ``"sgr"`` or ``"empirical"``, which
                promises nothing. ``"best"`` is the second, which covers most.
            calibrator: ``"auto"``, ``"none"``, or ``"temperature"``, ``"ensemble"``, ``"vector"``, ``"isotonic"``.
            score: ``"auto"``, or a score's name; ``"normalised_max_logit"`` chooses its p.
            centre: whether the normalised largest logit is that of centred logits; both are tried if left out.
            repeats: ``"first"`` keeps the first row of each id; without it ids that repeat are refused, because the
                guarantee takes samples to be independent.
            seed: of the split, and of the random numbers of randomised sets.
            progress: called as the passes over the predictions advance: two, and a third with sets.
            engine: what goes through the predictions, if not this process alone: ``calibrant.predictions.OnRay()``
                for a cluster.
            **shortcuts: the same in other words: ``target_risk``, or instead ``target_coverage``, the share of
                samples to answer; ``by_class``, so that the risk holds for every predicted class; ``costs``,
                ``target_cost`` and ``abstain_cost``, as of `calibrant.promises.Cost`; ``group`` for ``by``;
                ``set_method``, ``set_penalty``, ``set_free_ranks`` and ``set_randomised``, as of
                `calibrant.promises.Sets`.

        Example:
            >>> import numpy as np
            >>> from calibrant import Policy, Predictions
            >>> from calibrant.promises import Risk, Sets
            >>> rng = np.random.default_rng(0)
            >>> honest = 3 * rng.standard_normal((3000, 5))
            >>> labels = (honest + rng.gumbel(size=honest.shape)).argmax(1)
            >>> policy = Policy.fit(Predictions.from_logits(2 * honest, labels), Risk(0.1), sets=Sets(0.9))
            >>> policy.calibrator.name, policy.threshold.risk.high <= 0.1
            ('temperature', True)
            >>> labels, confidence, accept = policy.decide(np.array([[9.0, 0, 0, 0, 0], [1, 1, 0, 0, 0]]))
            >>> labels.tolist(), accept.tolist()
            ([0, 0], [True, False])
        """
        from calibrant.policy.fit import fit_policy, read_request  # here: they make policies

        request = read_request(
            predictions, promise, confidence, by, sets, method, calibrator, score, centre, seed, shortcuts
        )
        return fit_policy(predictions, request, repeats, progress, engine)

    def __repr__(self) -> str:
        return f"Policy({self.summary!r})"

    def __str__(self) -> str:
        lines = (self.summary, self.price_summary, self.majority_summary, self.method_summary)
        return "\n".join(filter(None, lines))

    def decide(self, logits: Any, groups: Any = None) -> Decisions[Any]:
        """Labels, calibrated confidence and whether to answer.

        Args:
            logits: ``[N, C]``, for segmentation ``[N, C, ...]``, from NumPy or PyTorch, which the answer is too;
                probabilities where the policy was fitted on them. Of two classes one column, ``[N]`` or ``[N, 1]``,
                is that of the positive class. Or `Predictions`.
            groups: ``[N]`` each sample's group, where the policy has a threshold for each; one that it does not know is
                never answered. Predictions bring theirs along.
        """
        if not isinstance(logits, Predictions):
            return decide(self, logits, groups)
        self.check(logits)
        parts = [self.decide_batch(batch) for batch in logits.batches()]
        return Decisions(*(np.concatenate(column) for column in zip(*parts, strict=True)))

    def decide_batch(self, batch: Predictions) -> Decisions[Any]:
        """The decisions about a batch of predictions that were checked."""
        return decide(self, batch.data.values, None if self.group is None else batch.groups[self.group])

    def predict_sets(self, logits: Any, *, start: int = 0) -> Any:
        """The prediction set of each sample: a mask ``[N, C]`` that is true for its members.

        Args:
            logits: as for `decide`.
            start: the number of the first sample; the random numbers of randomised sets depend on it.

        Example:
            >>> import numpy as np
            >>> from calibrant import Policy, Predictions
            >>> rng = np.random.default_rng(0)
            >>> honest = 3 * rng.standard_normal((3000, 5))
            >>> labels = (honest + rng.gumbel(size=honest.shape)).argmax(1)
            >>> policy = Policy.fit(Predictions.from_logits(2 * honest, labels), target_risk=0.1, sets=0.9)
            >>> policy.predict_sets(np.array([[9.0, 0, 0, 0, 0], [4, 4, 0, -9, -9]])).astype(int).tolist()
            [[1, 0, 0, 0, 0], [1, 1, 0, 0, 0]]
        """
        if not isinstance(logits, Predictions):
            return predict_sets(self, logits, start)
        self.check(logits)
        parts = []
        for batch in logits.batches():
            parts.append(predict_sets(self, batch.data.values, start))
            start += len(batch)
        return np.concatenate(parts)

    def check(self, predictions: Predictions) -> None:
        """Raise unless these predictions are of the kind that the policy was fitted on."""
        if predictions.holds != self.takes:
            raise ValueError(
                f"the policy takes {self.takes}, got {predictions.holds}: save the {self.takes} of these samples too, "
                f"or fit a policy on {predictions.holds}"
            )
        if predictions.num_classes != self.num_classes:
            raise ValueError(f"the policy is for {self.num_classes} classes, got {predictions.num_classes}")
        if predictions.kind != self.kind:
            raise ValueError(f"the policy is for {self.kind}, got {predictions.kind}")
        if self.class_names and predictions.class_names and self.class_names != predictions.class_names:
            expected, names = differing_names(self.class_names, predictions.class_names)
            raise ValueError(
                f"the policy's classes are {expected}, those of the predictions {names}: they must be the same in order"
            )
        if self.group is not None and self.group not in predictions.group_names:
            raise ValueError(f"the policy has thresholds by {self.group!r}, which the predictions do not hold")

    def module(self, model: nn.Module | None = None) -> PolicyModule:
        """The policy as an ``nn.Module``, behind a model if one is given; it can be exported with ``torch.export``.

        Example:
            >>> import torch
            >>> from calibrant import Policy, Predictions
            >>> logits = torch.randn(500, 3, generator=torch.Generator().manual_seed(0))
            >>> policy = Policy.fit(Predictions.from_logits(logits, logits.argmax(1)), target_risk=0.2)
            >>> policy.module()(logits[:2]).accept.shape
            torch.Size([2])
        """
        from calibrant.policy.module import PolicyModule  # here: it needs PyTorch

        return PolicyModule(self, model)

    def save(self, path: str | Path) -> None:
        """Write the policy as JSON, aside and then renamed."""
        if Path(path).suffix.lower() != ".json":
            raise ValueError(f"{path}: a policy is written as .json, got {Path(path).suffix!r}")
        text = json.dumps(self.document, indent=2, allow_nan=False, ensure_ascii=False) + "\n"
        with written_aside(path) as aside:
            # Half a surrogate pair, which evidence may hold, becomes the escape that JSON has for it.
            aside.write_text(text, encoding="utf-8", errors="backslashreplace")

    @classmethod
    def load(cls, path: str | Path) -> Policy:
        """Read a policy, checked from end to end; whatever is wrong is a ValueError that names file and entry.

        Nothing in the file is executed.
        """
        data = read_regular(path, LARGEST)
        try:
            return cls.from_document(parse_json(data, "a policy"))
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from None

    @property
    def document(self) -> dict[str, Any]:
        """What the file of the policy holds, as plain values: versioned, for people to read as well.

        The last entry is a checksum of all others, as JSON with sorted names and no white space: a damaged file is not
        taken for another policy. One that was written or edited by hand may do without it.
        """
        from calibrant import __version__

        calibrator, price = self.calibrator, None
        if self.price is not None:
            measures = [measure.to_dict(self.class_names) for measure in self.price.measures]
            price = {"summary": self.price_summary, "constant": self.majority_summary, "measures": measures}
        entries = {
            "format": FORMAT,
            "version": VERSION,
            "calibrant": __version__,
            "summary": self.summary,
            "how": self.method_summary,
            "takes": self.takes,
            "kind": self.kind,
            "classes": self.num_classes,
            "class_names": None if self.class_names is None else list(self.class_names),
            "positive": self.positive,
            "target_risk": self.target_risk,
            "confidence": self.confidence,
            "calibrator": None if calibrator is None else {"name": calibrator.name, **calibrator.state()},
            "score": self.score.to_dict(),
            "threshold": self.threshold.to_entries(),
            "group": self.group,
            "groups": None if self.groups is None else {k: v.to_entries() for k, v in self.groups.items()},
            "evidence": json_value(dict(self.evidence)),
            "price": price,
        }
        if self.floor != FLOOR:
            entries["floor"] = self.floor
        if (promise := self.promise.to_entries(self.class_names)) is not None:
            entries["promise"] = promise
        if self.classes is not None:
            entries["class_thresholds"] = [part.to_entries(self.class_names) for part in self.classes]
        if self.sets is not None:
            entries["sets"] = self.sets.to_entries(self.class_names)
        return {**entries, "checksum": _checksum(entries)}

    @classmethod
    def from_document(cls, document: Any) -> Policy:
        """The policy of a `document`, checked.

        Example:
            >>> Policy.from_document({"format": "calibrant.policy", "version": 7})
            Traceback (most recent call last):
            ValueError: policies of version 1 are read, got version 7
        """
        if not isinstance(document, dict) or document.get("format") != FORMAT:
            raise ValueError(f"not a policy: expected an object with format {FORMAT!r}")
        if document.get("version") != VERSION or isinstance(document["version"], bool):
            raise ValueError(f"policies of version {VERSION} are read, got version {excerpt(document.get('version'))}")
        missing = next((name for name in REQUIRED if name not in document), None)
        if missing is not None:
            raise ValueError(f"{missing} is missing in {cls._document()}")
        entries = {name: value for name, value in document.items() if name not in FOR_READERS}
        promise = read_promise(entries.pop("promise", None), entries.pop("target_risk", None))
        policy = cls(**entries, promise=promise)
        if policy.positive is None and policy.num_classes == 2:
            policy = policy.model_copy(update={"positive": customary_positive(policy.class_names)})
        if "checksum" in document and document["checksum"] != _checksum(document):
            raise ValueError(
                "the checksum is of other contents: the file is damaged, or was edited; if the change was meant, "
                'remove the line "checksum"'
            )
        return policy

    @property
    def positive_name(self) -> str | None:
        """The name of the positive class of two; None if it is unknown."""
        return None if self.positive is None else class_name(self.positive, self.class_names)

    @property
    def classes(self) -> tuple[ClassThreshold, ...] | None:
        """Threshold by predicted class, in every group if there are groups; or None."""
        return self.class_thresholds

    @property
    def target_risk(self) -> float | None:
        """The risk asked for; None where it was a coverage, or something else is promised."""
        return self.promise.target_risk

    @property
    def unit(self) -> str:
        """What is answered, in words."""
        return "pixels" if self.kind == "segmentation" else "samples"

    @property
    def limits(self) -> Doubles:
        """The thresholds as numbers: one, one per group in the order of `group_names`, or one per class (and group)."""
        thresholds = self.parts.values() if self.classes is None else [part.threshold for part in self.classes]
        return np.array([threshold.value for threshold in thresholds])

    @property
    def parts(self) -> dict[str, Threshold]:
        """The thresholds by name: of all answers, whose name is empty, or of each group or class."""
        if self.classes is not None:
            return {part.name(self.class_names): part.threshold for part in self.classes}
        return {"": self.threshold} if self.groups is None else dict(self.groups)

    @property
    def part_column(self) -> str | None:
        """What the thresholds depend on: the group column, the predicted class, or both; None where there is one."""
        names = [self.group, None if self.classes is None else "predicted class"]
        return " and ".join(name for name in names if name is not None) or None

    @property
    def group_names(self) -> tuple[str, ...] | None:
        """The groups with thresholds of their own."""
        if self.classes is not None and self.group is not None:
            return tuple(dict.fromkeys(str(part.group) for part in self.classes))
        return None if self.groups is None else tuple(self.groups)

    @property
    def limit_table(self) -> Doubles:
        """The thresholds by group, of which there may be one, and class ``[groups, C]``, or ``[groups, 1]`` for all."""
        return self.limits[:, None] if self.classes is None else np.append(self.limits, np.inf)[self._class_parts]

    @property
    def _class_parts(self) -> Ints:
        """The position of each group's and class's threshold in `classes`, ``[groups, C]``; -1 where there is none."""
        numbers = {name: number for number, name in enumerate(self.group_names or ())}
        table = np.full((max(1, len(numbers)), self.num_classes), -1, np.int64)
        for number, part in enumerate(self.classes or ()):
            table[0 if part.group is None else numbers[part.group], part.label] = number
        return table

    def group_numbers(self, groups: Array) -> Ints:
        """The position of each sample's group in `group_names`, -1 for an unknown group."""
        numbers = {name: number for number, name in enumerate(self.group_names or ())}
        distinct, inverse = np.unique(np.asarray(groups).astype(str), return_inverse=True)
        return np.array([numbers.get(name, -1) for name in distinct.tolist()], dtype=np.int64)[inverse]

    def part_numbers(self, groups: Array | None, predicted: Ints) -> Ints:
        """The position of each sample's threshold among `limits`, by group and predicted class; -1 without one."""
        rows = np.zeros(len(predicted), np.int64)
        if groups is not None and self.group_names is not None:
            rows = self.group_numbers(groups)
        if self.classes is None:
            return rows
        return np.append(self._class_parts, np.full((1, self.num_classes), -1), axis=0)[rows, predicted]

    def limits_of(self, groups: Array, predicted: Ints) -> Doubles:
        """The threshold of each sample, by the name of its group and the class that it is predicted to have."""
        return np.append(self.limits, np.inf)[self.part_numbers(groups, predicted)]

    @property
    def abstains(self) -> bool:
        """Whether it never answers."""
        return bool((self.limits == math.inf).all())

    @property
    def promised(self) -> float | None:
        """The risk that is promised: the target, or the limit that came with a coverage; None if there is none."""
        if self.threshold.confidence is None or self.abstains:
            return None
        limit = self.promise.promised_risk(self)
        return None if limit is None or math.isnan(limit) else limit

    @property
    def summary(self) -> str:
        """What it does and promises, in a sentence or two."""
        threshold, unit = self.threshold, self.unit
        if self.abstains:
            return threshold.reason
        answer = self.promise.answer
        so = "" if answer is None else f" as {class_name(answer, self.class_names)}"
        if threshold.accepted == threshold.samples:
            return f"Answers all {unit}{so}. {self.promise.words(self)}"
        coverage = threshold.coverage
        limits = span_words(coverage.low, coverage.high, "share", coverage.value)
        share = f"{percent(coverage.value)} of {unit}" + (f" ({limits})" if limits else "")
        return f"Answers {share}{so} and abstains on the rest. {self.promise.words(self)}"

    @property
    def method_summary(self) -> str:
        """Calibrator and score, in a sentence."""
        calibrated = "not calibrated" if self.calibrator is None else f"calibrated by {self.calibrator.title.lower()}"
        return f"Confidence {calibrated}; answers ranked by the {self.score.words}."

    @property
    def calibration_summary(self) -> str:
        """The calibration error before and after the calibrator, out of sample; empty where it is not known."""
        evidence = self.evidence.get("calibration")
        if not evidence:
            return ""
        number = f"{count(evidence['samples'])} {self.unit}"
        before, after = (_ece_text(evidence[name]) for name in ("before", "after"))
        if self.calibrator is None:
            return f"Calibration error (ECE) on {number}: {after}; no calibrator is used."
        unseen = f"{number} that the calibrator was not fitted on"
        return f"Calibration error (ECE) on {unseen}: {before} before, {after} after."

    @property
    def calibration_warning(self) -> str:
        """That its confidence is still poorly calibrated, and what would be better; empty where it is not."""
        evidence = self.evidence.get("calibration") or {}
        if not is_poor(evidence):
            return ""
        still = "" if self.calibrator is None else "still "
        poor = f"Warning: {still}poorly calibrated, with an ECE above {round_percent(LARGE_ERROR)};"
        better = evidence.get("better")
        if better:
            title = CALIBRATORS[better["name"]].title.lower()
            reached = f"{title} reaches {percent(better['ece'])} against {percent(better['chosen_ece'])}"
            where = "by cross-fitting on the samples of the choice, at a higher NLL"
            return f"{poor} {reached} {where}: choose it with --calibrator {better['name']}."
        if evidence.get("compared"):
            return f"{poor} none of the other calibrators is better beyond chance. More held-out samples may help."
        if self.evidence.get("samples", FEWEST_FOR_CHOICE) < FEWEST_FOR_CHOICE:
            return f"{poor} calibrators are compared from {FEWEST_FOR_CHOICE} samples on."
        return f"{poor} --calibrator auto compares all calibrators."

    @property
    def majority_summary(self) -> str:
        """What always giving one answer is worth, and a warning where the policy is worth no more.

        Empty where the majority class is wrong in over half of the samples.
        """
        return self.promise.constant(self.answered, self.evidence, self.promised, self.class_names)

    @property
    def answered(self) -> Answered:
        """What it answered of the samples that set its threshold."""
        threshold = self.threshold
        tally, classes = self.promise.seen, self.promise.class_answers(self)
        return Answered(
            threshold.samples, threshold.accepted, threshold.errors, threshold.coverage, tally, classes, self.unit
        )

    @property
    def price(self) -> Price | None:
        """What its promise costs, on the samples that set the threshold; None where it never answers.

        Of a recall the precision, of a precision the recall, of a risk the coverage, of a cost or an expected risk the
        coverage and the error rate, each with limits at its confidence.

        Example:
            >>> import numpy as np
            >>> from calibrant import Policy, Predictions
            >>> rng = np.random.default_rng(0)
            >>> labels = rng.integers(0, 2, 4000)
            >>> logit = 2 * (labels - 0.5) + rng.standard_normal(4000)
            >>> data = Predictions.from_logits(np.stack([-logit, logit], axis=1), labels)
            >>> for measure in Policy.fit(data, "recall[1] >= 0.9").price.measures:
            ...     print(measure.name, f"{measure.share.value:.2f}")
            precision 0.81
            coverage 0.57
        """
        if self.abstains:
            return None
        return self.promise.price(self.answered, self.class_names, self.confidence)

    @property
    def price_summary(self) -> str:
        """What its promise costs, in a sentence or two; empty where it never answers."""
        if self.price is None:
            return ""
        unit = "images" if self.kind == "segmentation" else "samples"
        number = self.evidence.get("for_threshold") if unit == "images" else self.threshold.samples
        is_chosen_on_them = any(measure.name != "coverage" for measure in self.price.measures)
        optimistic = ", which is slightly optimistic" if is_chosen_on_them else ""
        return f"Price: {self.price.words}, seen on the {count(number)} {unit} that set the threshold{optimistic}."

    @field_validator("class_names", mode="wrap")
    @classmethod
    def _check_names(cls, value: Any, handler: ValidatorFunctionWrapHandler, info: ValidationInfo) -> Any:
        classes = info.data.get("num_classes")
        if value is None or classes is None:
            return None
        try:
            names = handler(value)
        except ValidationError:
            names = []
        if len(names) != classes:
            raise refusal(f"must be {classes} names or null")
        name, number = Counter(names).most_common(1)[0]
        if number > 1:
            raise refusal(f"must differ, got {excerpt(name)} {number} times")
        return names

    @field_validator("score", mode="before")
    @classmethod
    def _check_score(cls, value: Any) -> Any:
        for name in ("name", "of") if isinstance(value, dict) else ():
            if name not in value:
                raise ValueError(f"score.{name} is missing")
        return value

    @field_validator("groups", mode="before")
    @classmethod
    def _check_groups(cls, value: Any) -> Any:
        if value is not None and (not isinstance(value, dict) or not value):
            raise refusal(f"must be an object with a threshold for each, or null, got {excerpt(value)}")
        return value

    @field_validator("evidence")
    @classmethod
    def _check_evidence(cls, evidence: Mapping[str, Any], info: ValidationInfo) -> Mapping[str, Any]:
        reference, classes = evidence.get("reference"), info.data.get("num_classes")
        if reference is None or classes is None:
            return evidence
        listed = reference["predicted"]["classes"]
        if len(set(listed)) != len(listed) or max(listed) >= classes:
            raise refusal(f"reference.predicted.classes must be different classes below {classes}")
        if reference["labels"] is not None and len(reference["labels"]) != classes:
            raise refusal(f"reference.labels must be {classes} counts or null")
        if any(len(rows) != classes for rows in (reference.get("by_class") or {}).values()):
            raise refusal(f"reference.by_class must have {classes} rows each")
        return evidence

    @field_validator("sets", mode="before")
    @classmethod
    def _size_counts(cls, value: Any, info: ValidationInfo) -> Any:
        """Counts of sets, in a file without their zeros at the end, are of all classes."""
        if isinstance(value, dict) and isinstance(value.get("counts"), dict) and "num_classes" in info.data:
            return {**value, "counts": {"num_classes": info.data["num_classes"], **value["counts"]}}
        return value

    @model_validator(mode="after")
    def _check_parts(self) -> Self:
        """That promise, score, groups and classes go together."""
        promise = self.promise
        if self.positive is not None and self.num_classes != 2:
            raise ValueError(f"positive is for two classes, got {self.positive} with {self.num_classes}")
        promise.check(self.num_classes)
        if not promise.is_plain and self.kind == "segmentation":
            raise ValueError("promise: this one is for classification, but the policy is for segmentation")
        required = None if promise.score is None else promise.score.name
        if (self.score.is_of_promise or required is not None) and self.score.name != required:
            raise ValueError(f"score.name must be {required or 'one of a promise of risk'}, got {self.score.name}")
        if self.score.of == "calibrated" and self.calibrator is None and required is None:
            raise ValueError("score is of calibrated logits, but there is no calibrator")
        if promise.has_class_thresholds != (self.classes is not None):
            raise ValueError(
                "class_thresholds go with a promise by class or of precision: one is there without the other"
            )
        if self.groups is not None and not promise.is_plain:
            raise ValueError("groups have thresholds of their own, and the promise is of something else")
        if self.classes is None and (self.groups is None) != (self.group is None):
            raise ValueError("group and groups go together: one is null and the other is not")
        if self.groups is not None and self.kind == "segmentation":
            raise ValueError("groups are for classification, but this policy is for segmentation")
        if self.sets is not None and self.kind != "classification":
            raise ValueError(f"sets are for classification, but this policy is for {self.kind}")
        return self

    @model_validator(mode="after")
    def _check_classes(self) -> Self:
        """That thresholds of classes are of different classes of the policy."""
        if self.classes is None:
            return self
        if not self.classes:
            raise ValueError("class_thresholds must not be empty")
        (label, _), number = Counter((part.label, part.group) for part in self.classes).most_common(1)[0]
        if number > 1:
            raise ValueError(f"class_thresholds have class {label} {number} times")
        for part in self.classes:
            if part.label >= self.num_classes:
                raise ValueError(f"class_thresholds have a class {part.label}, of {self.num_classes}")
            if (part.group is None) != (self.group is None):
                raise ValueError("class_thresholds have groups where the policy has a group column, and only there")
        if len(self.parts) < len(self.classes):
            raise ValueError("class_thresholds must have names that differ: a group and a class are called alike")
        return self

    @model_validator(mode="after")
    def _check_thresholds(self) -> Self:
        """That what is said of each threshold agrees with the policy and with itself, and bears out the promise."""
        self.promise.check_fitted(self)
        self._check_threshold("threshold", self.threshold, self.target_risk, is_used="" in self.parts)
        for name, threshold in (self.groups or {}).items():
            self._check_threshold(f"groups.{name[:40]}", threshold, self.target_risk)
        for number, part in enumerate(self.classes or ()):
            risks = self.promise.risks
            risk = risks.get(part.label) if isinstance(risks, Mapping) else risks
            self._check_threshold(f"class_thresholds.{number}", part.threshold, risk)
        return self

    @model_validator(mode="after")
    def _check_formula(self) -> Self:
        """That it gives a finite confidence, whatever comes, and sets of its classes."""
        extremes = np.zeros((3, self.num_classes))
        extremes[0, 0], extremes[1], extremes[2, -1] = 1.0, 1 / self.num_classes, 1.0
        if self.takes == "logits":
            extremes[0, 0], extremes[2, -1] = EXTREME, -EXTREME
        group = None if self.group_names is None else np.zeros((3, 1))
        if not np.isfinite(decision_formula(self, NumpyOps(), extremes, group).confidence).all():
            raise ValueError("calibrator gives probabilities that are not finite")
        if self.sets is not None:
            self.sets.check(self.num_classes)
        return self

    def _check_threshold(
        self, entry: str, threshold: Threshold, target_risk: float | None, *, is_used: bool = True
    ) -> None:
        low, high = self.promise.score_range if self.score.is_of_promise else self.score.span(self.num_classes)
        low, high = low - 1e-9, high + 1e-9  # room for rounding
        is_unset = math.isnan(threshold.value) and is_used
        if is_unset or (math.isfinite(threshold.value) and not low <= threshold.value <= high):
            requirement = f"from {low:g} to {high:g}, as {self.score.name} is"
            value = "nothing" if is_unset else f"{threshold.value:g}"
            raise ValueError(f"{entry}.accept_from must be a number {requirement}, got {value}")
        if not threshold.errors <= threshold.accepted <= threshold.samples:
            counts = f"{threshold.errors}, {threshold.accepted} and {threshold.samples}"
            raise ValueError(f"{entry}: errors, accepted and samples must not fall, got {counts}")
        if threshold.target_risk != target_risk:
            raise ValueError(f"{entry}.target_risk must be the policy's {target_risk}, got {threshold.target_risk}")
        if threshold.confidence is not None and not self.confidence <= threshold.confidence < 1:
            least = f"the policy's {self.confidence} at least"
            raise ValueError(f"{entry}.confidence must be {least}, got {threshold.confidence}")
        for name, part, total in (
            ("coverage", threshold.accepted, threshold.samples),
            ("risk", threshold.errors, threshold.accepted),
        ):
            share: Interval = getattr(threshold, name)
            if total and not math.isclose(share.value, part / total, rel_tol=1e-9, abs_tol=1e-12):
                raise ValueError(f"{entry}.{name}.value must be {part} of {total}, got {share.value}")
            # A limit that is to hold in less than half of the cases may lie below what was seen.
            is_limited = name != "risk" or self.confidence >= 0.5
            if is_limited and (share.low > share.value + 1e-12 or share.high < share.value - 1e-12):
                raise ValueError(f"{entry}.{name} must lie between its limits, got {share}")
        if threshold.confidence is None or target_risk is None or not threshold.accepted:
            return
        if not math.isnan(threshold.value) and threshold.risk.high > target_risk + 1e-9:
            raise ValueError(f"{entry}.risk.high must be at most the target {target_risk}, got {threshold.risk.high}")


def _ece_text(ece: Mapping[str, float | None]) -> str:
    has_limits = all(limit is not None and math.isfinite(limit) for limit in (ece.get("low"), ece.get("high")))
    limits = f" {span(ece['low'], ece['high'], 'share', ece['value'])}" if has_limits else ""
    return f"{percent(ece['value'])}{limits}"


def _checksum(entries: Mapping[str, Any]) -> str:
    """The checksum of a policy's document; one that is among the entries does not count."""
    content = {name: value for name, value in entries.items() if name != "checksum"}
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return f"sha256:{hashlib.sha256(text.encode('ascii')).hexdigest()}"
