"""The answer of an audit: the verdict, what a policy does to the audited predictions, and what to do next.

The verdict is about one model, about which of several is better, or about whether a policy keeps its promise. The next
step is one sentence, with the exact command if there is one.
"""

from __future__ import annotations

import itertools
import math
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from calibrant.base.numbers import allowed, percent, round_percent
from calibrant.metrics import Interval, wilson
from calibrant.policy import Outcome, Policy
from calibrant.promises import PROMISES, Offer

Part = Mapping[str, Any]
_WORST_FIRST = ("poor", "fair", "unknown", "info", "good")
#: How a verdict's level reads in the middle of a sentence.
_TRUST = {
    "good": "can be trusted",
    "fair": "is a little off",
    "poor": "cannot be trusted as it is",
    "unknown": "cannot be judged from so few samples",
}
_PROMISES = {  # level and title by `Outcome.promise_kept`
    "yes": ("good", "The policy keeps its promise"),
    "no": ("poor", "The policy breaks its promise"),
    "unclear": ("fair", "The policy misses its promise here, which may be chance"),
    "no sign": ("info", "No sign that the policy breaks its promise"),
    "silent": ("poor", "The policy never answers: what was asked for cannot be promised"),
    "nothing": ("info", "The policy answers nothing here"),
    "unknown": ("info", "The policy promises no risk"),
}
_SETS = {  # level and title by `Outcome.sets_hold`
    "no": ("poor", "The prediction sets hold fewer true classes than promised"),
    "no sign": ("info", "No sign that the prediction sets hold fewer true classes than promised"),
    "unknown": ("info", "Whether the prediction sets hold the true classes is unknown"),
}


def overall_verdict(models: Sequence[Part], comparisons: Sequence[Part], policy: Part | None) -> dict[str, str]:
    """Level, headline and text at the top of an audit.

    ``models`` are documents, the first one's calibrated version behind it if there is a policy; ``comparisons`` are
    those of each further model with the first; ``policy`` is what `describe_policy` gives.
    """
    if policy is not None:
        return _about_policy(models, policy)
    if len(models) > 1:
        return _about_several(models, comparisons)
    return dict(models[0]["verdict"])


def better_model(models: Sequence[Part], comparisons: Sequence[Part]) -> str | None:
    """The name of the model to prefer: with the lower calibration error beyond chance, and no lower accuracy; or None.

    Of more than two, the one with the lowest calibration error of those that are better than the first, else the first
    if it is better than all others.
    """
    first_name = str(models[0]["name"])
    winners = {str(part["second"]): _winner(part) for part in comparisons}
    better = [name for name, winner in winners.items() if winner == name]
    if better:
        errors = {str(model["name"]): _metric(model, "ece_15") for model in models}
        return min(better, key=lambda name: errors[name])
    is_best = len(winners) == len(models) - 1 and all(winner == first_name for winner in winners.values())
    return first_name if is_best else None


def _winner(comparison: Part) -> str | None:
    """Which of two models is better in ECE or accuracy beyond chance, and worse in neither."""
    signs = {_sign(row) for row in comparison["rows"] if row["name"] in ("ece_15", "accuracy")} - {0}
    if len(signs) != 1:
        return None
    return str(comparison["second"] if signs == {1} else comparison["first"])


def _sign(row: Part) -> int:
    """1 if the second is better beyond chance, -1 if the first is, else 0."""
    low, high = row["low"], row["high"]
    if low is None or high is None or not (low > 0 or high < 0):
        return 0
    is_higher = low > 0
    return 1 if is_higher == (row["better"] == "high") else -1


def _about_several(models: Sequence[Part], comparisons: Sequence[Part]) -> dict[str, str]:
    text = " ".join(f"{model['name']}: {model['verdict']['headline']}" for model in models)
    level = _worst_level(model["verdict"]["level"] for model in models)
    best = better_model(models, comparisons)
    if best is None:
        if not comparisons:
            words = "Which is better cannot be told, because they are not on the same samples"
        elif len(models) > 2:
            words = "None is better than the others in both calibration and accuracy, beyond chance"
        else:
            words = _advantages(comparisons[0]) or "Neither is better in calibration or accuracy beyond chance"
        return {"level": level, "headline": f"{words}; {_trust_words(models)}.", "text": text}
    part = next(part for part in comparisons if best in (part["first"], part["second"]))
    rival = part["first"] if best == part["second"] else part["second"]
    gains = ", ".join(filter(None, (_gain(row, best == part["second"]) for row in part["rows"])))
    best_model = next(model for model in models if model["name"] == best)
    trust_in_others = _trust_words([model for model in models if model is not best_model])
    state = _TRUST[best_model["verdict"]["level"]]
    joint = "but" if state == _TRUST["poor"] else "and"
    headline = f"{best} is better than {rival} ({gains}), {joint} its confidence {state}; {trust_in_others}."
    return {"level": str(best_model["verdict"]["level"]), "headline": headline, "text": text}


def _advantages(comparison: Part) -> str:
    """Which of two models is better calibrated, and which is more accurate; empty where that is no more than chance."""
    rows = {row["name"]: row for row in comparison["rows"]}
    clauses = []
    for name, words in (("ece_15", "is better calibrated"), ("accuracy", "is more accurate")):
        if name in rows and (sign := _sign(rows[name])):
            model = comparison["second"] if sign == 1 else comparison["first"]
            clauses.append(f"{model} {words} ({_gain(rows[name], sign == 1)})")
    return ", and ".join(clauses)


def _trust_words(models: Sequence[Part]) -> str:
    """Whether the confidence of each of some models can be trusted."""
    states = [(str(model["name"]), _TRUST[model["verdict"]["level"]]) for model in models]
    if len(states) > 1 and len({state for _, state in states}) == 1:
        return f"the confidence of {'both' if len(states) == 2 else 'all'} {states[0][1]}"
    return ", ".join(f"{'that' if k else 'the confidence'} of {name} {state}" for k, (name, state) in enumerate(states))


def _gain(row: Part, is_second: bool) -> str:
    """The advantage of a model over another in accuracy or ECE, if it is beyond chance."""
    if row["name"] not in ("ece_15", "accuracy") or _sign(row) != (1 if is_second else -1):
        return ""
    value, rival_value = (row["second"], row["first"]) if is_second else (row["first"], row["second"])
    label = "ECE" if row["name"] == "ece_15" else "accuracy"
    return f"{label} {percent(value)} against {percent(rival_value)}"


def _about_policy(models: Sequence[Part], policy: Part) -> dict[str, str]:
    original = models[0]
    repaired = next((model for model in models if model["name"] == f"{original['name']}, calibrated"), None)
    answered, errors = (
        next(row for row in policy["rows"] if row["label"] == label) for label in ("Answered", "Wrong answers")
    )
    result = str(policy["promise"]["result"]).removesuffix(".")  # where something else than wrong answers is promised
    clauses = [f"{result[0].lower()}{result[1:]}"] if result else []
    if errors["value"] is not None and errors["value"] == errors["value"]:
        note = f" ({errors['note']})" if errors["note"] else ""
        share = percent(answered["value"])
        wrong = f"{percent(errors['value'])} of its answers are wrong{note}"
        # Where all answers are one, the wrong ones are what its precision counts.
        is_one = PROMISES[policy["promise"]["of"]].gives_one_answer
        clauses.append(f"it answers {share} here, and {policy['promise']['price'] if is_one else wrong}")
    headline = ": ".join(filter(None, [str(policy["title"]), "; ".join(clauses)]))
    model = repaired or original
    if policy["fitted_on_these"] and repaired:
        change = f"ECE {percent(_metric(original, 'ece_15'))} before, {percent(_metric(repaired, 'ece_15'))} after"
        level = _worst_level([str(policy["level"]), "unknown"])
        ending = f"Its calibrator was fitted on these predictions ({change})."
        return {"level": level, "headline": f"{headline}. {ending}", "text": str(model["verdict"]["text"])}
    state = "Calibrated, its confidence" if repaired else "Its confidence, which the policy leaves as it is,"
    before, after = _metric(original, "ece_15"), _metric(model, "ece_15")
    change = f"ECE {percent(before)} before, {percent(after)} after" if repaired else f"ECE {percent(after)}"
    level = _worst_level([str(policy["level"]), str(model["verdict"]["level"])])
    return {
        "level": "unknown" if level == "info" else level,
        "headline": f"{headline}. {state} {_TRUST[model['verdict']['level']]} ({change}).",
        "text": str(model["verdict"]["text"]),
    }


def _metric(model: Part, name: str) -> float:
    value = next((metric["value"] for metric in model["metrics"] if metric["name"] == name), None)
    return float("nan") if value is None else float(value)


def _worst_level(levels: Iterable[str]) -> str:
    return min(levels, key=_WORST_FIRST.index)


def describe_policy(outcome: Outcome, model: str) -> dict[str, Any]:
    """What a policy decides about audited predictions, and its promise against what happened."""
    policy, promised, expected = outcome.policy, outcome.policy.promised, outcome.policy.threshold.coverage
    has_no_estimate = policy.part_column or policy.abstains
    level, title = _PROMISES["silent" if policy.abstains else outcome.promise_kept]
    if outcome.fitted_on_these and policy.abstains:
        title = f"{title} (it was fitted on these very predictions)"
    elif outcome.fitted_on_these:
        level, title = (
            "info",
            "The policy was fitted on these very predictions, which cannot show how it does on new ones",
        )
    without_policy = Interval(outcome.all_errors / outcome.samples, math.nan, math.nan)
    rows = [
        ("Answered", outcome.coverage, "" if has_no_estimate else f"expected {percent(expected.value)}"),
        *_promise_rows(outcome),
        ("Wrong answers", outcome.risk, "" if promised is None else f"promised: at most {allowed(promised)}"),
    ]
    if policy.promise.answer is None:  # else what is not answered has another class than it would get
        rows.append(("Wrong if all were answered", without_policy, ""))
    if policy.kind == "segmentation":  # pixels are not independent, and images were not kept apart here
        rows = [(label, Interval(share.value, math.nan, math.nan), note) for label, share, note in rows]
    return {
        "model": model,
        "level": level,
        "title": title,
        "text": " ".join(outcome.sentences()),
        "evidence": policy.method_summary if policy.abstains else _promised(policy),
        "kept": outcome.promise_kept,
        "fitted_on_these": outcome.fitted_on_these,
        "column": policy.part_column,
        "promise": outcome.to_dict()["promise"],
        "rows": [{"label": label, **vars(share), "unit": "share", "note": note} for label, share, note in rows],
        "menu": [_offer(policy, offer) for offer in policy.threshold.menu] if policy.abstains else [],
        "groups": [
            _group(policy, name, *counts)
            for name, counts in (outcome.groups if policy.classes is None else outcome.classes).items()
        ],
        "sets": _sets(outcome),
    }


def _promised(policy: Policy) -> str:
    """What a policy promised when it was fitted, what that cost there, and how it decides."""
    warning = policy.majority_summary if policy.majority_summary.startswith("Warning") else ""
    words = (f"Promised: {policy.summary}", policy.price_summary, warning, policy.method_summary)
    return " ".join(filter(None, words))


def _offer(policy: Policy, offer: Offer) -> dict[str, Any]:
    """What else could be promised: the mean loss, the share that would be answered, in words, and as options."""
    group = [] if policy.group is None else ["--group", policy.group]
    options = [*policy.promise.options(offer.risk, policy.class_names), *group]
    goal = policy.promise.terms(policy.class_names).goal(offer.risk)
    return {**offer._asdict(), "promise": goal, "options": options}


def _promise_rows(outcome: Outcome) -> list[tuple[str, Interval, str]]:
    """The shares that are promised, other than of wrong answers, and what that costs; a cost is no share."""
    policy, rows = outcome.policy, []
    if policy.abstains or not outcome.labelled:
        return []
    for measure in outcome.price.promised:
        rows.append((measure.title(policy.class_names), measure.share, measure.note))
    shares = [measure for measure in outcome.price.measures if measure.label is not None]
    return rows + [(measure.title(policy.class_names), measure.share, "") for measure in shares]


def _sets(outcome: Outcome) -> dict[str, Any] | None:
    """The prediction sets of a policy on audited predictions: their sizes, and coverage in total and by class."""
    sets, counts = outcome.policy.sets, outcome.sets
    if sets is None or counts is None or not counts.samples:
        return None
    level, title = _SETS[outcome.sets_hold]
    if outcome.fitted_on_these:
        level, title = "info", "The prediction sets were fitted on these very predictions"
    facts, names = counts.to_dict(outcome.policy.class_names), outcome.policy.class_names
    promised = f"promised: {round_percent(sets.level)} on average"
    silent = facts["where_abstained"]
    rows = [
        {"label": "Sets with the true class", **facts["coverage"], "unit": "share", "note": promised},
        {"label": "Classes in a set, on average", **facts["mean_size"], "unit": "number", "note": ""},
        {"label": "Sets of one class", **facts["single"], "unit": "share", "note": ""},
        {"label": "Empty sets", **facts["empty"], "unit": "share", "note": ""},
    ]
    if silent["samples"]:
        condition = "where the policy abstains"
        rows += [
            {"label": "Sets of one or two classes", **silent["one_or_two"], "unit": "share", "note": condition},
            {"label": "Sets with the true class", **silent["coverage"], "unit": "share", "note": condition},
        ]
    return {
        "level": level,
        "title": title,
        "text": " ".join(outcome.set_sentences()),
        "evidence": " ".join(sets.sentences(names)),
        "hold": outcome.sets_hold,
        "method": sets.method,
        "promised": sets.level,
        "rows": rows,
        "classes": [
            {"name": str(row["class"]), "samples": row["samples"], **row["coverage"]}
            for row in facts["classes"]
            if row["samples"]
        ],
    }


def _group(policy: Policy, name: str, samples: int, accepted: int, errors: int) -> dict[str, Any]:
    threshold = policy.parts.get(name)
    if threshold is None:
        promised, note = None, "unknown to the policy: never answered"
    elif threshold.abstains:
        promised, note = None, "never answered"
    else:
        promised, note = None if policy.promised is None else threshold.target_risk, ""
    low, high = wilson(errors, accepted, 0.95)
    return {
        "name": name,
        "samples": samples,
        "answered": accepted / samples if samples else None,
        "wrong": errors / accepted if accepted else None,
        "low": float(low) if accepted else None,
        "high": float(high) if accepted else None,
        "promised": promised,
        "note": note,
    }


@dataclass(frozen=True)
class CommandWords:
    """The command line of an audit, as far as the next command needs it."""

    files: Mapping[str, str]  # the file of every model, by its name
    val: str | None = None  # the held-out file, or None
    policy: str | None = None  # the policy's file, or None
    reading: Sequence[str] = ()  # the options that say how files are read, as they were given
    selecting: Sequence[str] = ()  # those that say which rows of the audited files are read
    selecting_val: Sequence[str] = ()  # those that say which rows of the held-out file are read
    repeats: Sequence[str] = ()  # those about rows that repeat an id

    validation, test = "VALIDATION", "TEST"  # what files that are not known are called

    def without_weights(self) -> CommandWords:
        """The same of samples without weights, which a policy does not take."""
        pairs = enumerate(itertools.pairwise(self.reading))
        starts = {i for i, (option, value) in pairs if option == "--column" and value.startswith("weight=")}
        reading = [word for i, word in enumerate(self.reading) if not {i, i - 1} & starts]
        return replace(self, reading=(*reading, "--column", "weight="))

    def fit(self, file: str, *options: str) -> str:
        """The command that fits a policy on a file."""
        selecting = self.selecting_val if file == self.val else ()
        return shlex.join(["calibrant", "fit", file, *self.reading, *selecting, *self.repeats, *options])

    def judge(self, file: str) -> str:
        """The command that judges the audit's policy, or the one that `fit` writes, by a file."""
        selecting = self.selecting if file in self.files.values() else ()
        options = *self.reading, *selecting, *self.repeats, "--policy", self.policy or "policy.json"
        return shlex.join(["calibrant", "audit", file, *options])

    def fit_and_judge(self, file: str, test: str, *options: str) -> str:
        """The commands that fit a policy on a file and judge it by another."""
        return f"{self.fit(file, *options)} && {replace(self, policy=None).judge(test)}"

    def apply(self, file: str) -> str:
        """The command that decides about a file."""
        return shlex.join(["calibrant", "apply", self.policy or "policy.json", file, *self.reading, *self.selecting])

    def divide(self, file: str, *options: str) -> str:
        """The commands that divide a file, fit a policy on one part, and judge it by the other."""
        stem = re.sub(r"\W+", "_", Path(file).name.partition(".")[0]).strip("_") or "predictions"
        parts = f"{stem}_fit.npz", f"{stem}_judge.npz"
        reading = *self.reading, *self.selecting, *self.repeats
        divide = shlex.join(["calibrant", "holdout", file, *reading, "-o", *parts])
        # The parts hold what the options say of the file.
        return f"{divide} && {CommandWords({}).fit_and_judge(*parts, *options)}"


@dataclass(frozen=True)
class PythonWords:
    """The same for an audit in Python, whose predictions are called by their role."""

    files: Mapping[str, str] = field(default_factory=dict)
    val: str = "val"
    repeats: Sequence[str] = ()  # the options about rows that repeat an id

    unweighted: str = ""  # the call that leaves weights out

    validation, test = "val", "test"

    def without_weights(self) -> PythonWords:
        """The same of samples without weights, which a policy does not take."""
        return replace(self, unweighted=".unweighted()")

    def fit(self, file: str, *options: str) -> str:
        """The line that fits a policy."""
        arguments: dict[str, list[str]] = {} if options else {"target_risk": ["0.05"]}
        name = ""
        for word in (*options, *self.repeats):
            if word.startswith("--"):
                name = word.removeprefix("--").replace("-", "_")
                arguments.setdefault(name, [])
            else:
                is_text = name in ("promise", "group", "repeats")
                arguments[name].append(repr(word) if is_text else word.lower())
        values = {
            name: f"[{', '.join(texts)}]" if len(texts) > 1 else texts[0] if texts else "True"
            for name, texts in arguments.items()
        }
        return f"Policy.fit({file}{self.unweighted}, {', '.join(f'{name}={value}' for name, value in values.items())})"

    def judge(self, file: str) -> str:
        """The line that judges a policy."""
        repeats = f", repeats={self.repeats[1]!r}" if self.repeats else ""
        return f"audit({file}{self.unweighted}, policy=policy{repeats})"

    def fit_and_judge(self, file: str, test: str, *options: str) -> str:
        """The lines that fit a policy and judge it by other predictions."""
        return f"policy = {self.fit(file, *options)}\n{self.judge(test)}"

    def apply(self, file: str) -> str:
        """The line that decides."""
        return f"policy.decide({file})"

    def divide(self, file: str, *options: str) -> str:
        """The lines that divide predictions, fit a policy on one part, and judge it by the other."""
        source = f"{file}{self.unweighted}" + (".without_repeats()" if self.repeats else "")
        return f"fit, judge = {source}.holdout()\n{PythonWords().fit_and_judge('fit', 'judge', *options)}"


def next_step(
    words: CommandWords | PythonWords,
    model: str,
    *,
    holds: str,
    kind: str,
    split: str | None,
    level: str,
    policy: Part | None,
    has_val: bool,
) -> dict[str, str | None]:
    """The sentence and the command, or lines of Python; nothing is ever fitted on the audited predictions.

    ``model`` is the name of the model to continue with; ``holds``, ``kind`` and ``split`` are those of its predictions,
    ``level`` is that of the verdict on it, and ``has_val`` is whether there are held-out predictions of it.
    """
    file = words.files.get(model, "predictions")
    if holds == "confidence" or kind == "tokens":
        subject = "Confidences alone" if holds == "confidence" else "Tokens"
        values = "of every class" if holds == "confidence" else "of whole answers"
        text = f"{subject} can be judged but not repaired: save the logits or probabilities {values}."
        return {"text": text, "command": None}
    if policy is not None and policy["fitted_on_these"] and not policy["menu"]:
        text = f"Judge the policy on labelled samples that it was not fitted on ({words.test} here):"
        return {"text": text, "command": words.judge(words.test)}
    if policy is not None and not policy["menu"] and policy["kept"] != "no":
        return {"text": "Save the policy's answers:", "command": words.apply(file)}
    options: Sequence[str] = ()
    task = "Decide when it may answer" if level == "good" else "Repair it, and decide when it may answer"
    is_broken = policy is not None and not policy["menu"]
    if is_broken:
        task = "The policy does not fit these samples: fit another for samples like them"
    elif policy is not None:
        options, task = policy["menu"][0]["options"], "Fit again, asking for what can be promised"
    if has_val and words.val is not None and not is_broken:
        text = f"{task}, on the held-out predictions; then judge that on these:"
        return {"text": text, "command": words.fit_and_judge(words.val, file, *options)}
    source = "labelled ones that are not audited here" if is_broken else "held-out predictions of the same model"
    if split == "test":
        text = f"{task}, on {source} ({words.validation} here), because nothing is fitted on test data:"
        return {"text": text, "command": words.fit(words.validation, *options)}
    source += "" if is_broken else ", not on these"
    text = f"{task}, on {source} ({words.fit(words.validation, *options)}). If you have none, divide these:"
    return {"text": text, "command": words.divide(file, *options)}
