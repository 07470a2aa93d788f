"""The answer of an audit: the verdict, what a policy does to the audited predictions, and what to do next.

The verdict is about one model, about which of several is better, or about whether a policy keeps its promise. The next
step is one sentence, with the exact command if there is one.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from calibrant._numbers import allowed, percent, round_percent
from calibrant.metrics import Interval, wilson
from calibrant.selective import Offer, Outcome, Policy

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
        words = "Neither is better" if len(models) == 2 else "None is better than all others"
        words += " in calibration and accuracy beyond chance"
        if not comparisons:
            words = "Which is better cannot be said, because they are not about the same samples"
        return {"level": level, "headline": f"{words}; {_trust_words(models)}.", "text": text}
    part = next(part for part in comparisons if best in (part["first"], part["second"]))
    rival = part["first"] if best == part["second"] else part["second"]
    gains = ", ".join(filter(None, (_gain(row, best == part["second"]) for row in part["rows"])))
    best_model = next(model for model in models if model["name"] == best)
    trust_in_others = _trust_words([model for model in models if model is not best_model])
    state = _TRUST[best_model["verdict"]["level"]]
    headline = f"{best} is better than {rival} ({gains}), and its confidence {state}; {trust_in_others}."
    return {"level": str(best_model["verdict"]["level"]), "headline": headline, "text": text}


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
        # The wrong answers of a recall are what its precision counts.
        is_recall = policy["promise"]["of"] == "recall"
        clauses.append(f"it answers {share} of them, {policy['promise']['price'] if is_recall else wrong}")
    headline = ": ".join(filter(None, [str(policy["title"]), "; ".join(clauses)]))
    model = repaired or original
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
    policy, promise, rows = outcome.policy, outcome.policy.promise, []
    if policy.abstains or not outcome.labelled:
        return []
    for measure in outcome.price.promised:
        note = f"expected: at most {allowed(promise.target)}"
        if measure.label is not None:
            note = f"promised: at least {allowed(dict(promise.shares)[measure.label])}"
        rows.append((measure.title(policy.class_names), measure.share, note))
    shares = [measure for measure in outcome.price.measures if measure.label is not None]
    return rows + [(measure.title(policy.class_names), measure.share, "") for measure in shares]


def _sets(outcome: Outcome) -> dict[str, Any] | None:
    """The prediction sets of a policy on audited predictions: their sizes, and coverage in total and by class."""
    sets, counts = outcome.policy.sets, outcome.sets
    if sets is None or counts is None or not counts.samples:
        return None
    level, title = _SETS[outcome.sets_hold]
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

    def fit(self, file: str, *options: str) -> str:
        """The command that fits a policy on a file."""
        return shlex.join(["calibrant", "fit", file, *self.reading, *options])

    def check(self, file: str) -> str:
        """The command that judges the policy which `fit` writes on a file."""
        return shlex.join(["calibrant", "audit", file, *self.reading, "--policy", "policy.json"])

    def apply(self, file: str) -> str:
        """The command that decides about a file."""
        return shlex.join(["calibrant", "apply", self.policy or "policy.json", file, *self.reading])


def next_step(
    words: CommandWords | None, model: str, *, holds: str, split: str | None, level: str, policy: Part | None
) -> dict[str, str | None]:
    """The sentence and the command, or a line of Python if no command line was used.

    ``model`` is the name of the model to continue with, ``holds`` and ``split`` are those of its predictions, and
    ``level`` is that of the verdict on it.
    """
    if holds == "confidence":
        text = "Confidences alone can be judged but not repaired: save the logits or probabilities of every class."
        return {"text": text, "command": None}
    if words is None:
        return _in_python(split, level, policy)
    file = words.files.get(model, model)
    if policy is not None:
        return _after_policy(words, file, split, policy)
    if words.val is not None:
        text = f"{_task(level)}, on the held-out predictions; then judge that on these:"
        return {"text": text, "command": f"{words.fit(words.val)} && {words.check(file)}"}
    if split == "test":
        text = f"{_task(level)}, on held-out predictions (VALIDATION here), because nothing is fitted on test data:"
        return {"text": text, "command": words.fit("VALIDATION")}
    return {"text": f"{_task(level)}:", "command": words.fit(file)}


def _task(level: str) -> str:
    return "Decide when it may answer" if level == "good" else "Repair it, and decide when it may answer"


def _after_policy(words: CommandWords, file: str, split: str | None, policy: Part) -> dict[str, str | None]:
    options, file_to_fit = [], file if split != "test" else "VALIDATION"
    if policy["menu"]:
        options = policy["menu"][0]["options"]
        text = "Fit again, on samples that the policy has not seen, asking for what can be promised:"
    elif policy["kept"] == "no":
        text = "The policy does not fit these samples: fit another on labelled ones like them:"
    else:
        return {"text": "Write down the policy's answers:", "command": words.apply(file)}
    return {"text": text, "command": words.fit(file_to_fit, *options)}


def _in_python(split: str | None, level: str, policy: Part | None) -> dict[str, str | None]:
    if policy is not None and policy["kept"] != "no" and not policy["menu"]:
        return {"text": "Decide about samples with the policy:", "command": "policy.decide(predictions)"}
    held_out = "val" if split == "test" else "predictions"
    return {"text": f"{_task(level)}:", "command": f"Policy.fit({held_out}, target_risk=0.05)"}
