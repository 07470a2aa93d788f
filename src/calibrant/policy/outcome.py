"""A policy on a set of predictions: its decisions as a file, and, where labels are known, was its promise kept."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from calibrant.base.arrays import Array
from calibrant.base.checks import Bools, listing
from calibrant.base.files import json_value, written_aside
from calibrant.base.numbers import allowed, count, percent, span_words
from calibrant.base.progress import Progress, silent
from calibrant.base.spreadsheet import quote_formulas
from calibrant.metrics import Interval
from calibrant.policy.evidence import Fingerprint, fingerprint_of
from calibrant.policy.formula import Decisions
from calibrant.policy.policy import Policy
from calibrant.policy.prediction_sets import SetCounts
from calibrant.predictions import LOCAL, PassEngine, Piece, Predictions, class_name
from calibrant.promises.bounds import UNKNOWN, coverage_interval, risk_interval
from calibrant.promises.images import AnsweredImages
from calibrant.promises.price import Answered, ClassAnswers, LossTally, Price

FORMATS = (".parquet", ".csv", ".npz")
LEVEL = 0.05  # of a verdict, shared by all parts
FITTED_ON_THESE = "The policy was fitted on these predictions: they cannot show how it does on new ones."


class Counts(NamedTuple):
    """Samples, how many of them were answered, and how many answers are wrong."""

    samples: int = 0
    accepted: int = 0
    errors: int = 0

    def plus(self, samples: int, accepted: int, errors: int) -> Counts:
        """The counts with those of more samples."""
        return Counts(self.samples + int(samples), self.accepted + int(accepted), self.errors + int(errors))


@dataclass
class Outcome:
    """What a policy did: counts of samples, or of pixels, and what they say about its promise."""

    policy: Policy
    samples: int = 0
    accepted: int = 0
    labelled: bool = True  # whether the true labels are known
    errors: int = 0  # wrong answers, if labels are known
    all_errors: int = 0  # what would be wrong if every sample was answered
    groups: dict[str, Counts] = field(default_factory=dict)  # where the policy has thresholds for each
    images: AnsweredImages = field(default_factory=AnsweredImages)  # of segmentation
    fingerprint: Fingerprint = field(default_factory=Fingerprint)  # of the predictions
    sets: SetCounts | None = None  # where the policy gives prediction sets
    classes: dict[str, Counts] = field(default_factory=dict)  # by what has a threshold, where predicted classes have
    tally: LossTally = field(default_factory=LossTally)  # what a promise is about, if not about wrong answers
    answers: dict[int, ClassAnswers] = field(default_factory=dict)  # of the classes that the promise names
    repeats: int | None = None  # how many labelled rows repeat an id that came before, where that was counted
    start: int = 0  # how many samples are before these, which matters where sets are randomised

    def __post_init__(self) -> None:
        if self.policy.sets is not None and self.sets is None:
            self.sets = SetCounts(self.policy.num_classes)

    def add(self, batch: Predictions, decisions: Decisions[Array], members: Array | None = None) -> None:
        """Count a batch; its prediction sets are computed where the policy gives them and they are not given."""
        if self.sets is not None:
            if members is None:
                members = self.policy.predict_sets(batch, start=self.start + self.fingerprint.rows)
            self.sets.add(members, decisions.accept, batch.labels, batch.ignore_index)
        self.fingerprint.add(batch)
        labels, counted = batch.labels, np.ones(decisions.accept.shape, dtype=bool)
        self.labelled = labels is not None
        if labels is not None and batch.ignore_index is not None:
            counted = labels != batch.ignore_index
        is_wrong = np.zeros_like(counted) if labels is None else (decisions.labels != labels) & counted
        accept = decisions.accept & counted
        self.samples += int(counted.sum())
        self.accepted += int(accept.sum())
        self.errors += int((accept & is_wrong).sum())
        self.all_errors += int(is_wrong.sum())
        if self.policy.kind == "segmentation":
            by_image = (part.reshape(len(part), -1).sum(1) for part in (accept, counted))
            added_images = zip(self.images, AnsweredImages.of(*by_image), strict=True)
            self.images = AnsweredImages(*map(sum, added_images))
        if self.policy.group is not None:
            names = np.asarray(batch.groups[self.policy.group]).astype(str)
            for name in np.unique(names).tolist():
                added = (part[names == name].sum() for part in (counted, accept, accept & is_wrong))
                self.groups[name] = self.groups.get(name, Counts()).plus(*added)
        self._add_promise(batch, decisions, counted, accept, accept & is_wrong)

    def _add_promise(
        self, batch: Predictions, decisions: Decisions[Array], counted: Bools, accept: Bools, errors: Bools
    ) -> None:
        """Count what a promise about classes, recall, a cost or an expected risk is judged by."""
        policy = self.policy
        if policy.classes is not None:
            groups = None if policy.group is None else batch.groups[policy.group]
            numbers = policy.part_numbers(groups, decisions.labels)
            columns = [
                np.bincount(numbers[rows & (numbers >= 0)], minlength=len(policy.classes))
                for rows in (counted, accept, errors)
            ]
            for part, added in zip(policy.classes, zip(*columns, strict=True), strict=True):
                name = part.name(policy.class_names)
                self.classes[name] = self.classes.get(name, Counts()).plus(*added)
        promise = policy.promise
        for label in promise.labels if batch.labels is not None else ():
            says, is_of_class = accept & (decisions.labels == label), counted & (batch.labels == label)
            _, samples, answers, right = self.answers.get(label, ClassAnswers(label, 0, 0, 0))
            self.answers[label] = ClassAnswers(
                label,
                samples + int(is_of_class.sum()),
                answers + int(says.sum()),
                right + int((says & is_of_class).sum()),
            )
        if promise.mean_loss is not None and batch.labels is not None:
            labels = np.where(counted, batch.labels, 0)
            rows, losses = promise.losses(labels, decisions.labels, accept)
            rows = rows & counted
            self.tally = LossTally(self.tally.rows + int(rows.sum()), self.tally.loss + float(losses[rows].sum()))

    def absorb(self, other: Outcome) -> None:
        """Count what the policy did with other samples, too; groups are then in the order of their names."""
        self.samples += other.samples
        self.accepted += other.accepted
        self.labelled &= other.labelled
        self.errors += other.errors
        self.all_errors += other.all_errors
        self.images = AnsweredImages(*map(sum, zip(self.images, other.images, strict=True)))
        self.fingerprint.absorb(other.fingerprint)
        if self.sets is not None and other.sets is not None:
            self.sets.absorb(other.sets)
        for own, added in ((self.groups, other.groups), (self.classes, other.classes)):
            for name, counts in added.items():
                own[name] = own.get(name, Counts()).plus(*counts)
        self.groups = dict(sorted(self.groups.items()))
        for label, (_, *counted) in other.answers.items():
            _, *before = self.answers.get(label, ClassAnswers(label, 0, 0, 0))
            self.answers[label] = ClassAnswers(label, *map(sum, zip(before, counted, strict=True)))
        self.tally = LossTally(self.tally.rows + other.tally.rows, self.tally.loss + other.tally.loss)

    @property
    def coverage(self) -> Interval:
        """Share answered, with limits."""
        return coverage_interval(self.accepted, self.samples, 0.95)

    @property
    def risk(self) -> Interval:
        """Share of answers that are wrong, with exact limits at 95%; NaN where nothing is known or was answered."""
        return risk_interval(self.errors, self.accepted, 0.025, 0.025) if self.labelled else UNKNOWN

    @property
    def price(self) -> Price:
        """What came of the promise here, and what it costs; of labelled samples."""
        answered = Answered(
            self.samples,
            self.accepted,
            self.errors,
            self.coverage,
            self.tally,
            tuple(self.answers.values()),
            self.policy.unit,
        )
        return self.policy.promise.price(answered, self.policy.class_names)

    def _tallies(self) -> dict[str, tuple[LossTally, float]]:
        """Of what has a promise of its own, the losses and the mean that is promised: all, each group or each class."""
        policy, promised = self.policy, self.policy.promised
        if policy.promise.mean_loss is not None:
            return {"": (self.tally, policy.promise.mean_loss)} if self.tally.rows and not policy.abstains else {}
        if policy.classes is not None:
            parts, risks = self.classes, {name: part.target_risk for name, part in policy.parts.items()}
        else:
            parts = self.groups if policy.groups is not None else {"": Counts(0, self.accepted, self.errors)}
            risks = dict.fromkeys(parts, promised)
        return {
            name: (LossTally(counts.accepted, float(counts.errors)), risk)
            for name, counts in parts.items()
            if counts.accepted and promised is not None and (risk := risks[name]) is not None
        }

    @property
    def broken(self) -> dict[str, LossTally]:
        """The parts in which the loss is larger than promised, beyond chance."""
        tallies = self._tallies()
        if not self.labelled or self.policy.kind == "segmentation":
            return {}
        # The chance of so large a loss, or a larger one, at the promised mean; shared by all parts that were answered.
        return {
            name: tally
            for name, (tally, target) in tallies.items()
            if self.policy.promise.break_p_value(tally, target) * len(tallies) < LEVEL
        }

    @property
    def promise_kept(self) -> str:
        """Whether the promise was kept.

        ``"yes"``: shown on these samples; ``"no"``: broken beyond chance; ``"no sign"`` that it is broken;
        ``"unclear"``: more are wrong than promised, perhaps by chance; ``"nothing"`` was answered; ``"unknown"``: there
        is no promise, or there are no labels.
        """
        tallies, promise = self._tallies(), self.policy.promise
        if self.labelled and not self.accepted and not (tallies and promise.counts_silence):
            return "nothing"
        if not tallies or not self.labelled:
            return "unknown"
        if self.broken:
            return "no"
        if any(tally.loss > target * tally.rows for tally, target in tallies.values()):
            return "no sign" if promise.holds_on_average else "unclear"
        level = LEVEL / len(tallies)
        is_shown = all(promise.is_shown(tally, target, level) for tally, target in tallies.values())
        return "yes" if is_shown and self.policy.kind == "classification" else "no sign"

    def recognise_first_rows(self, predictions: Predictions, engine: PassEngine = LOCAL) -> None:
        """See whether the policy was fitted on these predictions without the rows that repeat an id."""
        if not self.fitted_on_these:
            fingerprint = Fingerprint()
            for part in engine.run(fingerprint_of, predictions.without_repeats()):
                fingerprint.absorb(part)
            if str(fingerprint) == self.policy.evidence.get("fingerprint"):
                self.fingerprint = fingerprint

    @property
    def fitted_on_these(self) -> bool:
        """Whether these are the predictions that the policy was fitted on."""
        return str(self.fingerprint) == self.policy.evidence.get("fingerprint")

    @property
    def sets_hold(self) -> str:
        """Whether the sets hold the true class as often as promised.

        ``"no"``: less often, beyond chance; ``"no sign"`` of that; ``"unknown"``: there are no sets, or no labels.
        """
        sets, counts = self.policy.sets, self.sets
        if sets is None or counts is None or not counts.labelled or not counts.samples:
            return "unknown"
        return "no" if sets.p_value(counts) < 0.05 else "no sign"

    def set_sentences(self) -> list[str]:
        """What the prediction sets are, in plain sentences; none where the policy does not give them."""
        if self.policy.sets is None or self.sets is None:
            return []
        fewer = f"fewer than the promised {allowed(self.policy.sets.level)}"
        words = {
            "no": f"That is {fewer}, beyond chance: these samples are not like those that the sets were fitted on.",
            "no sign": f"No sign that the sets hold {fewer}.",
        }
        verdict = None if self.fitted_on_these else words.get(self.sets_hold)
        return [*self.sets.sentences(self.policy.class_names), *filter(None, [verdict])]

    def sentences(self) -> list[str]:
        """What happened, in plain sentences."""
        unit = self.policy.unit
        if not self.samples:
            return [f"There are no {unit} that count."]
        policy = self.policy
        answered = f"{count(self.accepted)} of {count(self.samples)} {unit} ({percent(self.accepted / self.samples)})"
        answer = policy.promise.answer
        so = "" if answer is None else f" as {class_name(answer, policy.class_names)}"
        text = [f"Answers {answered}{so} and abstains on the rest."]
        if policy.kind == "segmentation":
            text.append(f"{self.images.words().capitalize()}.")
        if policy.abstains:
            text = [f"Answers none of {count(self.samples)} {unit}: the policy never answers. {policy.summary}"]
        unknown = {name: part for name, part in self.groups.items() if name not in (policy.group_names or ())}
        if unknown:
            number, names = count(sum(part.samples for part in unknown.values())), listing(list(unknown), 5)
            text.append(f"In groups that the policy does not know ({names}), it never answers: {number} {unit} here.")
        if not self.labelled:
            return [*text, "There are no labels, so the share of wrong answers is unknown."]
        if not policy.abstains and self.price.result:
            text.append(self.price.result)
        if self.accepted and policy.promise.labels:
            text.append(f"{self.price.words[0].upper()}{self.price.words[1:]}.")
        if self.accepted and answer is None:  # of one answer for all, whose wrong answers its precision counts
            risk = self.risk
            interval = f" (95% interval {span_words(risk.low, risk.high, 'share', risk.value)})"
            limits = "" if unit == "pixels" else interval
            wrong = f"{count(self.errors)} of {count(self.accepted)}{limits}"
            text.append(
                f"{percent(risk.value)} of the answers are wrong, {wrong}; if everything "
                f"were answered, {percent(self.all_errors / self.samples)} would be."
            )
        text += [FITTED_ON_THESE] if self.fitted_on_these else self._verdict()
        if policy.majority_summary.startswith("Warning"):
            text.append(policy.majority_summary)
        return text

    def _verdict(self) -> list[str]:
        unit, promise = self.policy.unit, self.policy.promise.subject(self.policy.class_names, self.policy.promised)
        shares = [f"{name} ({percent(tally.mean)} of {count(tally.rows)})" for name, tally in self.broken.items()]
        parts = f" in {listing(shares, 5)}" if shares and "" not in self.broken else ""
        words = {
            "yes": f"{promise} is kept here.",
            "no sign": f"{promise}: no sign that it is broken.",
            "no": f"{promise} is broken beyond chance{parts}: these {unit} are not like those it was fitted on.",
            "unclear": f"{promise} is missed here, which may be chance.",
        }
        return [words[self.promise_kept]] if self.promise_kept in words else []

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        promise, sets, price = self.policy.promise, None, None
        if self.labelled and self.accepted:
            price = [measure.to_dict(self.policy.class_names) for measure in self.price.measures]
        unknown = {} if self.labelled else {"errors": None}
        if self.policy.sets is not None and self.sets is not None:
            sets = {"level": self.policy.sets.level, "method": self.policy.sets.method, "hold": self.sets_hold}
            sets |= self.sets.to_dict(self.policy.class_names)
        return {
            "samples": self.samples,
            "accepted": self.accepted,
            "coverage": json_value(vars(self.coverage)),
            "errors": self.errors if self.labelled else None,
            "risk": json_value(vars(self.risk)),
            "risk_of_all": self.all_errors / self.samples if self.labelled and self.samples else None,
            "target_risk": self.policy.target_risk,
            "promised_risk": self.policy.promised,
            "promise_kept": self.promise_kept,
            "fitted_on_these": self.fitted_on_these,
            "images": self.images._asdict() if self.policy.kind == "segmentation" else None,
            "groups": {name: counts._asdict() | unknown for name, counts in self.groups.items()},
            "classes": {name: counts._asdict() | unknown for name, counts in self.classes.items()},
            "promise": {
                "of": promise.of,
                "by_class": promise.by_class,
                "promised_loss": promise.mean_loss,
                "rows": self.tally.rows,
                "mean_loss": self.tally.mean if self.tally.rows else None,
                "words": self.policy.summary,
                "result": self.price.result if self.labelled and not self.policy.abstains else "",
                "price": self.price.words if self.labelled and self.accepted else "",
            },
            "price": price,
            "sets": sets,
        }


def apply_policy(
    policy: Policy,
    predictions: Predictions,
    path: Path,
    *,
    spreadsheet_safe: bool = False,
    progress: Progress = silent,
    engine: PassEngine = LOCAL,
) -> Outcome:
    """Decide about every sample, a batch at a time, and write the decisions aside, then rename.

    ``spreadsheet_safe`` is whether text in ``.csv`` must not begin like a formula. The engine's tasks decide; here the
    rows are written as they come, in order.
    """
    policy.check(predictions)
    outcome, suffix = Outcome(policy), path.suffix.lower()
    if policy.kind == "segmentation" and suffix != ".npz":
        raise ValueError(f"{path}: decisions about pixels are arrays, written as .npz")
    with written_aside(path) as aside:
        results = engine.run(partial(decide_piece, policy=policy), predictions, "deciding", progress)
        batches = _without_outcomes(results, outcome)
        if suffix == ".npz":
            parts = list(batches)
            columns: dict[str, Any] = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
            np.savez(aside, **columns | {"confidence": columns["confidence"].astype(np.float32)})
        else:
            names = policy.class_names or predictions.class_names
            quoted = spreadsheet_safe and suffix == ".csv"
            _write_table(aside, suffix, names, batches, quoted=quoted)
    if outcome.labelled:
        outcome.repeats = engine.count_repeats(predictions)
    if outcome.repeats:
        outcome.recognise_first_rows(predictions, engine)
    return outcome


def decide_piece(piece: Piece, policy: Policy) -> Iterator[dict[str, Array] | Outcome]:
    """The columns to write of each batch, and at last what the policy did; without ids, rows are numbered."""
    outcome = Outcome(policy)
    for start, batch in piece.batches():
        decisions, members = policy.decide_batch(batch), None
        if policy.sets is not None:
            members = policy.predict_sets(batch, start=start)
        outcome.add(batch, decisions, members)
        ids = np.arange(start, start + len(batch)) if batch.ids is None else np.asarray(batch.ids)
        columns = {"id": ids, "label": decisions.labels, "confidence": decisions.confidence, "accept": decisions.accept}
        yield columns if members is None else columns | {"set": members}
    yield outcome


def _without_outcomes(results: Iterable[dict[str, Array] | Outcome], total: Outcome) -> Iterator[dict[str, Array]]:
    """The columns of the batches; what the policy did is added up."""
    for result in results:
        if isinstance(result, Outcome):
            total.absorb(result)
        else:
            yield result


def _write_table(
    path: Path, suffix: str, names: tuple[str, ...] | None, tables: Iterable[dict[str, Array]], *, quoted: bool
) -> None:
    import pyarrow as pa
    import pyarrow.csv
    import pyarrow.parquet

    writer: Any = None
    try:
        for columns in tables:
            members = columns.pop("set", None)
            table = pa.table(columns)
            if names is not None:
                table = table.add_column(2, "class_name", pa.array(np.asarray(names)[columns["label"]]))
            if members is not None:
                table = table.append_column("set_size", pa.array(members.sum(1)))
                table = table.append_column("set", _set_column(members, names, as_text=suffix == ".csv"))
            if writer is None:
                make = pa.parquet.ParquetWriter if suffix == ".parquet" else pa.csv.CSVWriter
                writer = make(str(path), table.schema)
            writer.write_table(quote_formulas(table) if quoted else table)
    finally:
        if writer is not None:
            writer.close()


def _set_column(members: Array, names: tuple[str, ...] | None, *, as_text: bool) -> Any:
    """The members of each set as a list, by name where classes have names; as text, a list in JSON."""
    import pyarrow as pa

    _, classes = np.nonzero(members)
    values = classes if names is None else np.asarray(names)[classes]
    if as_text:
        parts = np.split(values, np.cumsum(members.sum(1))[:-1])
        return pa.array([json.dumps(part.tolist(), ensure_ascii=False) for part in parts])
    offsets = np.concatenate([[0], np.cumsum(members.sum(1))]).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(values))
