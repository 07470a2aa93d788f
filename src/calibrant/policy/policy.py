"""`Policy`: a calibrator, a score and a threshold, fitted together, that answer or abstain."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from calibrant.base.checks import LARGEST_SEED, check_integer, differing_names, listing
from calibrant.base.numbers import allowed, count, percent, round_percent, span, span_words
from calibrant.base.progress import Progress, silent
from calibrant.metrics import LARGE_ERROR
from calibrant.policy.evidence import is_poor
from calibrant.policy.fit import (
    FitRequest,
    check_arguments,
    check_compatible,
    check_fittable,
    fit_rule,
    read_promise,
    read_set_target,
)
from calibrant.policy.prediction_sets import predict_sets
from calibrant.policy.rule import Decisions, Rule, decide
from calibrant.posthoc import CALIBRATORS
from calibrant.posthoc.scores import NORMALISED
from calibrant.predictions import Predictions, class_name, resolve_repeats
from calibrant.promises.parts import ThresholdTarget
from calibrant.promises.price import Answered, ClassAnswers, Price, compare_with_constant, price_of
from calibrant.promises.promise import LossTally
from calibrant.promises.split import FEWEST_FOR_CHOICE
from calibrant.promises.thresholds import Method

if TYPE_CHECKING:
    from torch import nn

    from calibrant.policy.module import PolicyModule


class Policy(Rule):
    """A classifier's last step: the class, its confidence, and whether to answer at all.

    Made by `Policy.fit` or `Policy.load`.

    Attributes:
        num_classes: how many logits a row must have.
        class_names: their names, or None.
        positive: the position of the positive class of two, to which a single column belongs; None if unknown.
        takes: ``"logits"`` or ``"probabilities"``, as the predictions it was fitted on.
        kind: ``"classification"`` or ``"segmentation"``.
        calibrator: fitted, or None where the logits are used as they are.
        score: what ranks predictions by confidence.
        threshold: where to accept; with groups or classes, that of all of them together, for information.
        groups: threshold by group, or None.
        classes: threshold by predicted class, in every group if there are groups; or None.
        promise: what is promised: a risk, or something else.
        group: name of the group column.
        target_risk: the risk asked for, or None.
        confidence: of the guarantee and of the limits.
        evidence: how it was chosen: the samples, the candidates and how each did.
        sets: the prediction sets that it gives besides, or None.
        floor: what replaces smaller probabilities, in a policy that takes probabilities; above 1e-30 where those of the
            fit were rounded, or some were 0.
    """

    @classmethod
    def fit(
        cls,
        predictions: Predictions,
        target_risk: float | None = None,
        confidence: float = 0.95,
        *,
        target_coverage: float | None = None,
        method: Method = "best",
        calibrator: str = "auto",
        score: str = "auto",
        centre: bool | None = None,
        group: str | None = None,
        by_class: bool = False,
        promise: str | Sequence[str] | None = None,
        costs: Any = None,
        target_cost: float | None = None,
        abstain_cost: float | None = None,
        sets: float | None = None,
        set_method: str = "lac",
        set_penalty: float | None = None,
        set_free_ranks: int | None = None,
        set_randomised: bool = False,
        repeats: Literal["first"] | None = None,
        seed: int = 0,
        progress: Progress = silent,
    ) -> Policy:
        """Choose calibrator and score by cross-fitting, then the threshold on samples that the choice did not see.

        A random fifth of the samples (a larger share of fewer than 250) is for the choice. A calibrator or score that
        does not help by more than its standard error is not used; where none does, the score is the plain MSP of the
        logits as they come. The other samples set the threshold: nothing was chosen on them, so the guarantee holds for
        the policy as a whole. Where calibrator and score are given, a tenth of the samples plans the tests.

        Args:
            predictions: held-out logits or probabilities with labels; those marked as test are refused.
            target_risk: the error rate allowed among answers, 0.05 unless a coverage is asked for.
            confidence: of the guarantee: P(risk > target_risk) <= 1 - confidence.
            target_coverage: instead of a risk, the share of samples to answer.
            method: how the threshold is found: ``"best"``, ``"fixed-sequence"``, ``"sgr"`` or ``"empirical"``, which
                promises nothing. ``"best"`` is the second, which covers most.
            calibrator: ``"auto"``, ``"none"``, or ``"temperature"``, ``"ensemble"``, ``"vector"``, ``"isotonic"``.
            score: ``"auto"``, or a score's name; ``"normalised_max_logit"`` chooses its p.
            centre: whether the normalised largest logit is that of centred logits; both are tried if left out.
            group: a group column of the predictions: a threshold for every group, all of them guaranteed together.
            by_class: whether every predicted class has a threshold of its own, so that the risk holds for the answers
                of every class at once; with ``group``, for every class in every group.
            promise: instead of a risk ``"precision=CLASS:0.95"``, several of which may be given,
                ``"recall=CLASS:0.9"`` or ``"expected-risk:0.05"``. Of one class the policy answers that class, or not.
            costs: instead of a risk, what each answer costs, ``[C, C]`` by label and answer. The answer is the class
                of the least expected cost, by calibrated probabilities.
            target_cost: with costs, the mean cost allowed among answers.
            abstain_cost: with costs, what abstaining costs: an answer that is expected to cost more is not given.
            sets: a level such as 0.95: the policy also gives prediction sets, which hold the true class that often.
            set_method: ``"lac"``, ``"aps"``, ``"raps"`` or ``"class-conditional"``.
            set_penalty: the penalty of RAPS; chosen on the samples of the choice if left out.
            set_free_ranks: how many classes RAPS does not penalise; chosen likewise.
            set_randomised: whether APS and RAPS are randomised, with random numbers by ``seed``.
            repeats: ``"first"`` keeps the first row of each id; without it ids that repeat are refused, because the
                guarantee takes samples to be independent.
            seed: of the split.
            progress: called as the passes over the predictions advance: two, and a third with sets.

        Example:
            >>> import numpy as np
            >>> from calibrant import Policy, Predictions
            >>> rng = np.random.default_rng(0)
            >>> honest = 3 * rng.standard_normal((3000, 5))
            >>> labels = (honest + rng.gumbel(size=honest.shape)).argmax(1)
            >>> policy = Policy.fit(Predictions.from_logits(2 * honest, labels), target_risk=0.1)
            >>> policy.calibrator.name, policy.threshold.risk.high <= 0.1
            ('temperature', True)
            >>> labels, confidence, accept = policy.decide(np.array([[9.0, 0, 0, 0, 0], [1, 1, 0, 0, 0]]))
            >>> labels.tolist(), accept.tolist()
            ([0, 0], [True, False])
        """
        check_fittable(predictions)
        promised = read_promise(predictions, promise, by_class, costs, target_cost, abstain_cost)
        check_compatible(promised, target_risk, target_coverage, method, score, group)
        if target_risk is None and target_coverage is None and promised.of == "risk":
            target_risk = 0.05
        target = ThresholdTarget(target_risk, target_coverage, confidence, method)
        seed = check_integer("seed", seed, 0, LARGEST_SEED)
        score = score if promised.score is None else "msp"  # which is not used
        check_arguments(predictions, target, score, group)
        set_target = read_set_target(predictions, sets, set_method, set_penalty, set_free_ranks, set_randomised, seed)
        if centre is not None and score not in ("auto", NORMALISED):
            raise ValueError(f"centre is for the score {NORMALISED}, got score {score!r}")
        predictions = resolve_repeats(predictions, repeats)
        request = FitRequest(target, promised, set_target, calibrator, score, centre, group, seed)
        policy = cls(**vars(fit_rule(predictions, request, progress)))
        from calibrant.policy.file import from_dict, to_dict  # here: they bring pydantic along

        try:
            from_dict(to_dict(policy))  # what cannot be read back must not be written
        except ValueError as error:
            raise ValueError(f"no policy can be made of these predictions: {error}") from None
        return policy

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
        return decide(self, getattr(batch, batch.holds), None if self.group is None else batch.groups[self.group])

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
            parts.append(predict_sets(self, getattr(batch, batch.holds), start))
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
        from calibrant.policy.file import write_policy  # here: it brings pydantic along

        write_policy(self, path)

    @classmethod
    def load(cls, path: str | Path) -> Policy:
        """Read a policy, checked from end to end; nothing in the file is executed."""
        from calibrant.policy.file import read_policy  # here: it brings pydantic along

        return read_policy(path)

    @property
    def summary(self) -> str:
        """What it does and promises, in a sentence or two."""
        threshold, unit = self.threshold, self.unit
        if self.abstains:
            return threshold.reason
        answer = self.promise.answer
        so = "" if answer is None else f" as {class_name(answer, self.class_names)}"
        if threshold.accepted == threshold.samples:
            return f"Answers all {unit}{so}. {self._promise()}"
        coverage = threshold.coverage
        limits = span_words(coverage.low, coverage.high, "share", coverage.value)
        share = f"{percent(coverage.value)} of {unit}" + (f" ({limits})" if limits else "")
        return f"Answers {share}{so} and abstains on the rest. {self._promise()}"

    def _promise(self) -> str:
        threshold = self.threshold
        if not self.promise.is_plain:
            return self.promise.words(
                self.classes or (), threshold, self.class_names, self.group, self.target_risk, self.confidence
            )
        observed = f"seen: {percent(threshold.risk.value)} of {count(threshold.accepted)}"
        limit = threshold.risk.high if self.target_risk is None else self.target_risk
        if math.isnan(limit):
            return f"No risk was asked for and none is promised ({observed} answers wrong)."
        if self.target_risk is not None and threshold.confidence is None:
            met = f"{allowed(limit)} was met on these samples ({observed})"
            return f"The threshold is empirical: {met} and nothing is promised."
        promise = f"With {round_percent(self.confidence)} confidence at most {allowed(limit)} of the answers are wrong"
        if self.groups is None or self.target_risk is None:
            return f"{promise} ({observed})."
        silent = [name for name, threshold in self.groups.items() if threshold.abstains]
        never = f" It never answers for {listing(silent, 5)}." if silent else ""
        return f"{promise} in every {self.group} ({observed} in all).{never}"

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
        return compare_with_constant(self.promise, self.answered, self.evidence, self.promised, self.class_names)

    @property
    def answered(self) -> Answered:
        """What it answered of the samples that set its threshold."""
        threshold, promise, classes = self.threshold, self.promise, []
        tally = LossTally() if promise.tally is None else promise.tally
        if promise.of == "recall":
            right = threshold.accepted - threshold.errors
            classes = [ClassAnswers(promise.label, tally.rows, threshold.accepted, right)]
        for (label, _), samples in zip(promise.shares, promise.class_samples, strict=False):
            parts = [part.threshold for part in self.classes or () if part.label == label]
            answers, errors = sum(part.accepted for part in parts), sum(part.errors for part in parts)
            classes.append(ClassAnswers(label, samples, answers, answers - errors))
        return Answered(
            threshold.samples,
            threshold.accepted,
            threshold.errors,
            threshold.coverage,
            tally,
            tuple(classes),
            self.unit,
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
            >>> for measure in Policy.fit(data, promise="recall=1:0.9").price.measures:
            ...     print(measure.name, f"{measure.share.value:.2f}")
            precision 0.81
            coverage 0.57
        """
        if self.abstains:
            return None
        return price_of(self.promise, self.answered, self.class_names, self.confidence)

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


def _ece_text(ece: Mapping[str, float | None]) -> str:
    has_limits = all(limit is not None and math.isfinite(limit) for limit in (ece.get("low"), ece.get("high")))
    limits = f" {span(ece['low'], ece['high'], 'share', ece['value'])}" if has_limits else ""
    return f"{percent(ece['value'])}{limits}"
