"""Policies on disk: versioned JSON that a person can read, checked from end to end when it is loaded.

The last entry is a checksum of all others, as JSON with sorted names and no white space: a damaged file is not taken
for another policy. A policy that was written or edited by hand may do without: remove the line ``"checksum"`` after a
change that is meant. `file_entries` checks each entry on its own, `check_consistent` that they agree with each other.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from calibrant.base.checks import LARGEST_LOGIT
from calibrant.base.files import json_value, parse_json, read_regular, written_aside
from calibrant.metrics import Interval
from calibrant.policy.file_entries import EVERY_SET, VERSION, WORDS, PolicyEntries, excerpt, read_entries
from calibrant.policy.policy import Policy
from calibrant.policy.rule import Rule, decision_formula
from calibrant.posthoc import CALIBRATORS, Calibrator, NumpyOps
from calibrant.posthoc.scores import CLASS_PROBABILITY, EXPECTED_COST, NORMALISED, Score
from calibrant.predictions import FLOOR, class_name, customary_positive
from calibrant.promises.promise import Promise, check_costs
from calibrant.promises.sets import RANKED, PredictionSets
from calibrant.promises.thresholds import ClassThreshold, Threshold

FORMAT = "calibrant.policy"
LARGEST = 2**26  # bytes of a file
EXTREME = 1e4  # logits that every policy has a finite answer to


def write_policy(policy: Policy, path: str | Path) -> None:
    """Write a policy, aside and then renamed."""
    if Path(path).suffix.lower() != ".json":
        raise ValueError(f"{path}: a policy is written as .json, got {Path(path).suffix!r}")
    text = json.dumps(to_dict(policy), indent=2, allow_nan=False, ensure_ascii=False) + "\n"
    with written_aside(path) as aside:
        # Half a surrogate pair, which evidence may hold, becomes the escape that JSON has for it.
        aside.write_text(text, encoding="utf-8", errors="backslashreplace")


def read_policy(path: str | Path) -> Policy:
    """Read a policy; whatever is wrong with the file is a ValueError that names it and the entry."""
    data = read_regular(path, LARGEST)
    try:
        return from_dict(parse_json(data, "a policy"))
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def checksum(entries: Mapping[str, Any]) -> str:
    """The checksum of a policy as plain data; one that is among the data does not count."""
    content = {name: value for name, value in entries.items() if name != "checksum"}
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return f"sha256:{hashlib.sha256(text.encode('ascii')).hexdigest()}"


def to_dict(policy: Policy) -> dict[str, Any]:
    """A policy as plain data."""
    from calibrant import __version__

    calibrator = policy.calibrator
    entries = {
        "format": FORMAT,
        "version": VERSION,
        "calibrant": __version__,
        "summary": policy.summary,
        "how": policy.method_summary,
        "takes": policy.takes,
        "kind": policy.kind,
        "classes": policy.num_classes,
        "class_names": None if policy.class_names is None else list(policy.class_names),
        "positive": policy.positive,
        "target_risk": policy.target_risk,
        "confidence": policy.confidence,
        "calibrator": None if calibrator is None else {"name": calibrator.name, **calibrator.state()},
        "score": policy.score.to_dict(),
        "threshold": _threshold_dict(policy.threshold),
        "group": policy.group,
        "groups": None if policy.groups is None else {k: _threshold_dict(v) for k, v in policy.groups.items()},
        "evidence": json_value(dict(policy.evidence)),
        "price": _price_dict(policy),
    }
    if policy.floor != FLOOR:
        entries["floor"] = policy.floor
    if not policy.promise.is_plain:
        entries["promise"] = _promise_dict(policy.promise, policy.class_names)
    if policy.classes is not None:
        entries["class_thresholds"] = [
            {
                "class": part.label,
                "name": class_name(part.label, policy.class_names),
                "group": part.group,
                "threshold": _threshold_dict(part.threshold),
            }
            for part in policy.classes
        ]
    if policy.sets is not None:
        entries["sets"] = _sets_dict(policy.sets, policy.class_names)
    return {**entries, "checksum": checksum(entries)}


def _threshold_dict(threshold: Threshold) -> dict[str, Any]:
    entries = dict(vars(threshold))
    value = entries.pop("value")
    if menu := [offer._asdict() for offer in entries.pop("menu")]:
        entries["menu"] = menu
    intervals = {name: vars(entries[name]) for name in ("coverage", "risk")}
    return json_value({"accept_from": WORDS.get(value, value), **entries, **intervals})


def _price_dict(policy: Policy) -> dict[str, Any] | None:
    """What the promise costs; it follows from the rest, and is for readers."""
    if policy.price is None:
        return None
    measures = [measure.to_dict(policy.class_names) for measure in policy.price.measures]
    return {"summary": policy.price_summary, "constant": policy.majority_summary, "measures": measures}


def _promise_dict(promise: Promise, class_names: tuple[str, ...] | None) -> dict[str, Any]:
    """A promise as plain data, without what it does not have."""
    shares = [{"class": k, "name": class_name(k, class_names), "share": share} for k, share in promise.shares]
    for share, samples in zip(shares, promise.class_samples, strict=False):
        share["samples"] = samples
    entries = {
        "of": promise.of,
        "by_class": promise.by_class or None,
        "shares": shares or None,
        "target": promise.target,
        "abstain_cost": promise.abstain_cost,
        "costs": None if promise.costs is None else [list(row) for row in promise.costs],
        "seen": None if promise.tally is None else promise.tally._asdict(),
    }
    return {name: value for name, value in entries.items() if value is not None}


def _sets_dict(sets: PredictionSets, class_names: tuple[str, ...] | None) -> dict[str, Any]:
    """Prediction sets as plain data; ``summary`` and ``seen`` are for readers and follow from the rest."""
    entries: dict[str, Any] = {"level": sets.level, "method": sets.method}
    entries["quantiles"] = [EVERY_SET if math.isinf(quantile) else quantile for quantile in sets.quantiles]
    entries["samples"] = list(sets.samples)
    if sets.method == "raps":
        entries |= {"penalty": sets.penalty, "free_ranks": sets.free_ranks}
    if sets.randomised:
        entries |= {"randomised": True, "seed": sets.seed}
    entries["summary"] = " ".join(sets.sentences(class_names))
    if sets.counts is not None:
        counts = sets.counts
        entries["seen"] = counts.to_dict(class_names)
        entries["counts"] = {
            "sizes": np.trim_zeros(counts.sizes, "b").tolist() or [0],
            "abstained": np.trim_zeros(counts.abstained, "b").tolist() or [0],
            "class_samples": counts.class_samples.tolist(),
            "class_covered": counts.class_covered.tolist(),
            "abstained_covered": counts.abstained_covered,
        }
    return entries


def from_dict(data: Any) -> Policy:
    """A policy out of plain data, checked."""
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise ValueError(f"not a policy: expected an object with format {FORMAT!r}")
    if data.get("version") != VERSION or isinstance(data["version"], bool):
        raise ValueError(f"policies of version {VERSION} are read, got version {excerpt(data.get('version'))}")
    file = read_entries(data)
    names = None if file.class_names is None else tuple(file.class_names)
    if file.positive is not None and file.classes != 2:
        raise ValueError(f"positive is for two classes, got {file.positive} with {file.classes}")
    positive = customary_positive(names) if file.positive is None and file.classes == 2 else file.positive
    policy = Policy(
        num_classes=file.classes,
        class_names=names,
        positive=positive,
        takes=file.takes,
        kind=file.kind,
        calibrator=_restore_calibrator(file),
        score=Score(**dict(file.score)),
        threshold=file.threshold.restore(),
        groups=None if file.groups is None else {name: part.restore() for name, part in file.groups.items()},
        group=file.group,
        target_risk=file.target_risk,
        confidence=file.confidence,
        evidence=data["evidence"],
        floor=file.floor,
        sets=None if file.sets is None else file.sets.restore(file.classes),
        promise=Promise() if file.promise is None else file.promise.restore(),
        classes=None if file.class_thresholds is None else tuple(part.restore() for part in file.class_thresholds),
    )
    check_consistent(policy)
    if "checksum" in data and data["checksum"] != checksum(data):
        raise ValueError(
            "the checksum is of other contents: the file is damaged, or was edited; if the change was meant, remove "
            'the line "checksum"'
        )
    return policy


def _restore_calibrator(file: PolicyEntries) -> Calibrator | None:
    if file.calibrator is None:
        return None
    calibrator, state = CALIBRATORS[file.calibrator.name](), file.calibrator.model_extra or {}
    try:
        calibrator.restore(state, file.classes)
        unknown = set(state) - set(calibrator.state())
    except ValueError as error:
        raise ValueError(f"calibrator: {error}") from None
    if unknown:
        raise ValueError(f"calibrator.{min(unknown)[:40]} is not known for {calibrator.name}")
    return calibrator


def check_consistent(rule: Rule) -> None:
    """Raise a ValueError where entries contradict each other, or the policy gives no finite confidence."""
    _check_promise(rule)
    if rule.classes is None and (rule.groups is None) != (rule.group is None):
        raise ValueError("group and groups go together: one is null and the other is not")
    if rule.score.of == "calibrated" and rule.calibrator is None and rule.promise.score is None:
        raise ValueError("score is of calibrated logits, but there is no calibrator")
    if rule.groups is not None and rule.kind == "segmentation":
        raise ValueError("groups are for classification, but this policy is for segmentation")
    _check_threshold("threshold", rule.threshold, rule, rule.target_risk)
    for name, threshold in (rule.groups or {}).items():
        _check_threshold(f"groups.{name[:40]}", threshold, rule, rule.target_risk)
    for number, part in enumerate(rule.classes or ()):
        risk = rule.target_risk if rule.promise.by_class else rule.promise.risk_of(part.label)
        _check_threshold(f"class_thresholds.{number}", part.threshold, rule, risk)
    extremes = np.zeros((3, rule.num_classes))
    extremes[0, 0], extremes[1], extremes[2, -1] = 1.0, 1 / rule.num_classes, 1.0
    if rule.takes == "logits":
        extremes[0, 0], extremes[2, -1] = EXTREME, -EXTREME
    group = None if rule.group_names is None else np.zeros((3, 1))
    if not np.isfinite(decision_formula(rule, NumpyOps(), extremes, group).confidence).all():
        raise ValueError("calibrator gives probabilities that are not finite")
    _check_tally(rule)
    if rule.sets is not None:
        _check_sets(rule.sets, rule)


def _score_range(rule: Rule) -> tuple[float, float]:
    """Between what a score lies, and so a threshold, with room for rounding."""
    low, high = {
        "msp": (0.0, 1.0),
        "margin": (0.0, 1.0),
        "negative_entropy": (-math.log(rule.num_classes), 0.0),
        "max_logit": (-LARGEST_LOGIT, LARGEST_LOGIT),
        "energy": (-LARGEST_LOGIT, LARGEST_LOGIT),
        NORMALISED: (-1.0, 1.0),
        CLASS_PROBABILITY: (0.0, 1.0),
        EXPECTED_COST: (0.0 if rule.promise.costs is None else -rule.promise.highest, 0.0),
    }[rule.score.name]
    return low - 1e-9, high + 1e-9


def _check_threshold(entry: str, threshold: Threshold, rule: Rule, target_risk: float | None) -> None:
    low, high = _score_range(rule)
    is_unset = math.isnan(threshold.value) and ("" in rule.parts or entry != "threshold")
    if is_unset or (math.isfinite(threshold.value) and not low <= threshold.value <= high):
        requirement = f"from {low:g} to {high:g}, as {rule.score.name} is"
        value = "nothing" if is_unset else f"{threshold.value:g}"
        raise ValueError(f"{entry}.accept_from must be a number {requirement}, got {value}")
    if not threshold.errors <= threshold.accepted <= threshold.samples:
        counts = f"{threshold.errors}, {threshold.accepted} and {threshold.samples}"
        raise ValueError(f"{entry}: errors, accepted and samples must not fall, got {counts}")
    if threshold.target_risk != target_risk:
        raise ValueError(f"{entry}.target_risk must be the policy's {target_risk}, got {threshold.target_risk}")
    if threshold.confidence is not None and not rule.confidence <= threshold.confidence < 1:
        least = f"the policy's {rule.confidence} at least"
        raise ValueError(f"{entry}.confidence must be {least}, got {threshold.confidence}")
    for name, part, total in (
        ("coverage", threshold.accepted, threshold.samples),
        ("risk", threshold.errors, threshold.accepted),
    ):
        share: Interval = getattr(threshold, name)
        if total and not math.isclose(share.value, part / total, rel_tol=1e-9, abs_tol=1e-12):
            raise ValueError(f"{entry}.{name}.value must be {part} of {total}, got {share.value}")
        # A limit that is to hold in less than half of the cases may lie below what was seen.
        is_limited = name != "risk" or rule.confidence >= 0.5
        if is_limited and (share.low > share.value + 1e-12 or share.high < share.value - 1e-12):
            raise ValueError(f"{entry}.{name} must lie between its limits, got {share}")
    if threshold.confidence is None or target_risk is None or not threshold.accepted:
        return
    if not math.isnan(threshold.value) and threshold.risk.high > target_risk + 1e-9:
        raise ValueError(f"{entry}.risk.high must be at most the target {target_risk}, got {threshold.risk.high}")


def _check_promise(rule: Rule) -> None:
    promise = rule.promise
    _check_promise_entries(promise, rule.num_classes)
    if not promise.is_plain and rule.kind == "segmentation":
        raise ValueError("promise: this one is for classification, but the policy is for segmentation")
    required = None if promise.score is None else promise.score.name
    if (rule.score.name in (CLASS_PROBABILITY, EXPECTED_COST) or required is not None) and rule.score.name != required:
        raise ValueError(f"score.name must be {required or 'one of a promise of risk'}, got {rule.score.name}")
    if (rule.target_risk is not None) and promise.of != "risk":
        raise ValueError(f"target_risk must be null with a promise of {promise.of}, got {rule.target_risk}")
    if rule.target_risk is None and promise.by_class:
        raise ValueError("target_risk must be a number where classes have thresholds of their own")
    if promise.has_class_thresholds != (rule.classes is not None):
        raise ValueError("class_thresholds go with a promise by class or of precision: one is there without the other")
    if rule.groups is not None and not promise.is_plain:
        raise ValueError("groups have thresholds of their own, and the promise is of something else")
    if rule.classes is not None:
        _check_classes(rule, rule.classes)


def _check_promise_entries(promise: Promise, classes: int) -> None:
    needs = {"precision": "shares", "recall": "shares", "cost": "costs", "expected-risk": "target"}
    for name in ("shares", "costs"):
        if bool(getattr(promise, name)) != (needs.get(promise.of) == name):
            raise ValueError(f"promise.{name} does not go with a promise of {promise.of}, or is missing")
    if promise.by_class and promise.of != "risk":
        raise ValueError(f"promise.by_class is for a risk, got {promise.of}")
    if (promise.target is not None) != (promise.of in ("cost", "expected-risk")):
        raise ValueError(f"promise.target does not go with a promise of {promise.of}, or is missing")
    if promise.abstain_cost is not None and promise.of != "cost":
        raise ValueError(f"promise.abstain_cost is for a cost, got {promise.of}")
    labels = [label for label, _ in promise.shares]
    if promise.class_samples and (promise.of != "precision" or len(promise.class_samples) < len(labels)):
        raise ValueError("promise.shares have samples where precision is promised, each of them or none")
    if len(set(labels)) < len(labels) or max(labels, default=0) >= classes:
        raise ValueError(f"promise.shares must be of different classes below {classes}")
    if promise.of == "recall" and len(labels) != 1:
        raise ValueError(f"promise.shares must be one of recall, got {len(labels)}")
    if promise.of == "cost":
        check_costs(promise.costs, classes)
    if promise.mean_loss is not None and not 0 < promise.mean_loss < 1:
        raise ValueError(f"promise.target must lie between 0 and the highest loss, got {promise.target}")
    tally = promise.tally
    if (tally is not None) != (promise.of in ("recall", "cost", "expected-risk")):
        raise ValueError(f"promise.seen does not go with a promise of {promise.of}, or is missing")
    if tally is not None and tally.loss > tally.rows * (1 + 1e-9):
        raise ValueError(f"promise.seen.loss must be at most its rows, got {tally.loss:g} of {tally.rows}")


def _check_classes(rule: Rule, classes: tuple[ClassThreshold, ...]) -> None:
    promise = rule.promise
    if not classes:
        raise ValueError("class_thresholds must not be empty")
    (key, number), *_ = Counter((part.label, part.group) for part in classes).most_common(1)
    if number > 1:
        raise ValueError(f"class_thresholds have class {key[0]} {number} times")
    for part in classes:
        if part.label >= rule.num_classes:
            raise ValueError(f"class_thresholds have a class {part.label}, of {rule.num_classes}")
        if (part.group is None) != (rule.group is None):
            raise ValueError("class_thresholds have groups where the policy has a group column, and only there")
        if promise.of == "precision" and promise.risk_of(part.label) is None:
            raise ValueError(f"class_thresholds have class {part.label}, whose precision is not promised")
    if len(rule.parts) < len(classes):
        raise ValueError("class_thresholds must have names that differ: a group and a class are called alike")
    if promise.of == "precision":
        unserved = {label for label, _ in promise.shares} - {part.label for part in classes}
        if unserved:
            raise ValueError(f"class_thresholds lack class {min(unserved)}, whose precision is promised")


def _check_tally(rule: Rule) -> None:
    """Raise unless the counts bear out the promise, as far as they can tell."""
    promise = rule.promise
    for (label, _), samples in zip(promise.shares, promise.class_samples, strict=False):
        parts = [part.threshold for part in rule.classes or () if part.label == label]
        right = sum(part.accepted - part.errors for part in parts)
        if not right <= samples <= rule.threshold.samples:
            raise ValueError(f"promise.shares.samples must be from {right} to {rule.threshold.samples}, got {samples}")
    if promise.tally is None or promise.mean_loss is None or rule.abstains:
        return
    # A bet on costs may have been won before the last samples came, whose costs are above the target.
    is_counted = promise.of != "cost" and promise.tally.rows > 0 and rule.confidence >= 0.5
    if is_counted and promise.tally.mean > promise.mean_loss + 1e-9:
        mean = f"{promise.tally.mean:.4g}"
        raise ValueError(f"promise.seen must have a mean loss of at most {promise.mean_loss:.4g}, got {mean}")
    if promise.abstain_cost is not None and rule.threshold.value < -promise.abstain_cost - 1e-9:
        raise ValueError("threshold.accept_from must not lie below the abstain cost")


def _check_sets(sets: PredictionSets, rule: Rule) -> None:
    if rule.kind != "classification":
        raise ValueError(f"sets are for classification, but this policy is for {rule.kind}")
    expected = rule.num_classes if sets.method == "class-conditional" else 1
    for name in ("quantiles", "samples"):
        if len(getattr(sets, name)) != expected:
            raise ValueError(f"sets.{name} must have {expected} entries, got {len(getattr(sets, name))}")
    for quantile, rank, samples in zip(sets.quantiles, sets.ranks, sets.samples, strict=True):
        if math.isinf(quantile) != (rank > samples):
            requirement = '"all"' if rank > samples else "a number"
            raise ValueError(f"sets.quantiles must be {requirement} for {samples} samples at the level {sets.level}")
        if sets.method not in RANKED and not math.isinf(quantile) and quantile > 0:
            raise ValueError(f"sets.quantiles must be from -1 to 0 for {sets.method}, got {quantile:g}")
    if sets.method != "raps" and (sets.penalty or sets.free_ranks):
        raise ValueError(f"sets.penalty and sets.free_ranks are for raps, got {sets.method}")
    if sets.free_ranks > rule.num_classes:
        raise ValueError(f"sets.free_ranks must be at most {rule.num_classes}, got {sets.free_ranks}")
    if sets.randomised and sets.method not in RANKED:
        raise ValueError(f"sets.randomised is for {' and '.join(RANKED)}, got {sets.method}")
    if (counts := sets.counts) is None:
        return
    if int(counts.class_samples.sum()) != counts.samples:
        raise ValueError(f"sets.counts: class_samples must add up to the {counts.samples} of sizes")
    if (counts.class_covered > counts.class_samples).any():
        raise ValueError("sets.counts: class_covered must be at most class_samples")
    if (counts.abstained > counts.sizes).any() or counts.abstained_covered > int(counts.abstained.sum()):
        raise ValueError("sets.counts: what is abstained on must be at most all")
