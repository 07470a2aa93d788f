"""Policies on disk: versioned JSON that a person can read, checked from end to end when it is loaded.

The last entry is a checksum of all others, as JSON with sorted names and no white space: a damaged file is not taken
for another policy. A policy that was written or edited by hand may do without: remove the line ``"checksum"`` after a
change that is meant.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from calibrant._files import json_value, parse_json, read_regular, written_aside
from calibrant.posthoc import CALIBRATORS, Calibrator
from calibrant.predictions import FLOOR, class_name, customary_positive
from calibrant.selective.policy.rule import Rule
from calibrant.selective.policy_file.consistency import check_consistent
from calibrant.selective.policy_file.entries import EVERY_SET, VERSION, WORDS, PolicyEntries, excerpt, read_entries
from calibrant.selective.promise import Promise
from calibrant.selective.scores import Score
from calibrant.selective.sets import PredictionSets
from calibrant.selective.thresholds.risk import Threshold

FORMAT = "calibrant.policy"
LARGEST = 2**26  # bytes of a file


def write_policy(rule: Rule, path: str | Path) -> None:
    """Write a policy."""
    if Path(path).suffix.lower() != ".json":
        raise ValueError(f"{path}: a policy is written as .json, got {Path(path).suffix!r}")
    text = json.dumps(to_dict(rule), indent=2, allow_nan=False, ensure_ascii=False) + "\n"
    with written_aside(path) as aside:
        # Half a surrogate pair, which evidence may hold, becomes the escape that JSON has for it.
        aside.write_text(text, encoding="utf-8", errors="backslashreplace")


def read_policy(path: str | Path) -> Rule:
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


def to_dict(rule: Rule) -> dict[str, Any]:
    """A policy as plain data."""
    from calibrant import __version__

    calibrator = rule.calibrator
    entries = {
        "format": FORMAT,
        "version": VERSION,
        "calibrant": __version__,
        "summary": rule.summary,
        "how": rule.method_summary,
        "takes": rule.takes,
        "kind": rule.kind,
        "classes": rule.num_classes,
        "class_names": None if rule.class_names is None else list(rule.class_names),
        "positive": rule.positive,
        "target_risk": rule.target_risk,
        "confidence": rule.confidence,
        "calibrator": None if calibrator is None else {"name": calibrator.name, **calibrator.state()},
        "score": rule.score.to_dict(),
        "threshold": _threshold_dict(rule.threshold),
        "group": rule.group,
        "groups": None if rule.groups is None else {k: _threshold_dict(v) for k, v in rule.groups.items()},
        "evidence": json_value(dict(rule.evidence)),
    }
    if rule.floor != FLOOR:
        entries["floor"] = rule.floor
    if not rule.promise.is_plain:
        entries["promise"] = _promise_dict(rule.promise, rule.class_names)
    if rule.classes is not None:
        entries["class_thresholds"] = [
            {
                "class": part.label,
                "name": class_name(part.label, rule.class_names),
                "group": part.group,
                "threshold": _threshold_dict(part.threshold),
            }
            for part in rule.classes
        ]
    if rule.sets is not None:
        entries["sets"] = _sets_dict(rule.sets, rule.class_names)
    return {**entries, "checksum": checksum(entries)}


def _threshold_dict(threshold: Threshold) -> dict[str, Any]:
    entries = dict(vars(threshold))
    value = entries.pop("value")
    if menu := [offer._asdict() for offer in entries.pop("menu")]:
        entries["menu"] = menu
    intervals = {name: vars(entries[name]) for name in ("coverage", "risk")}
    plain: dict[str, Any] = json_value({"accept_from": WORDS.get(value, value), **entries, **intervals})
    return plain


def _promise_dict(promise: Promise, class_names: tuple[str, ...] | None) -> dict[str, Any]:
    """A promise as plain data, without what it does not have."""
    entries: dict[str, Any] = {"of": promise.of}
    if promise.by_class:
        entries["by_class"] = True
    if promise.shares:
        entries["shares"] = [
            {"class": label, "name": class_name(label, class_names), "share": share} for label, share in promise.shares
        ]
    for name in ("target", "abstain_cost"):
        if getattr(promise, name) is not None:
            entries[name] = getattr(promise, name)
    if promise.costs is not None:
        entries["costs"] = [list(row) for row in promise.costs]
    if promise.tally is not None:
        entries["seen"] = promise.tally._asdict()
    return entries


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


def from_dict(data: Any) -> Rule:
    """A policy out of plain data, checked."""
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise ValueError(f"not a policy: expected an object with format {FORMAT!r}")
    if data.get("version") != VERSION or isinstance(data["version"], bool):
        raise ValueError(f"policies of version {VERSION} are read, got version {excerpt(data.get('version'))}")
    file = read_entries(data)
    rule = Rule(
        num_classes=file.classes,
        class_names=None if file.class_names is None else tuple(file.class_names),
        positive=_read_positive(file),
        takes=file.takes,
        kind=file.kind,
        calibrator=_restore_calibrator(file),
        score=Score(**dict(file.score)),
        threshold=file.threshold.restore(),
        groups=None if file.groups is None else {name: entries.restore() for name, entries in file.groups.items()},
        group=file.group,
        target_risk=file.target_risk,
        confidence=file.confidence,
        evidence=data["evidence"],
        floor=file.floor,
        sets=None if file.sets is None else file.sets.restore(file.classes),
        promise=Promise() if file.promise is None else file.promise.restore(),
        classes=None if file.class_thresholds is None else tuple(part.restore() for part in file.class_thresholds),
    )
    check_consistent(rule)
    if "checksum" in data and data["checksum"] != checksum(data):
        raise ValueError(
            "the checksum is of other contents: the file is damaged, or was edited; if the change was meant, remove "
            'the line "checksum"'
        )
    return rule


def _read_positive(file: PolicyEntries) -> int | None:
    """The positive class of two; the customary one where the file does not say."""
    if file.classes != 2:
        if file.positive is not None:
            raise ValueError(f"positive is for two classes, got {file.positive} with {file.classes}")
        return None
    names = None if file.class_names is None else tuple(file.class_names)
    return customary_positive(names) if file.positive is None else file.positive


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
