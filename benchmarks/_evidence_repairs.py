"""The part of ./dev bench evidence about repairs: what each gains on samples it was not fitted on, and the choice.

Of every split one half is fitted on, the other judged. "Half" fits on all of the first half, "sixth" on a third of it:
`calibrant fit` chooses on a part of what it is given, since the rest is for the threshold.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np

from benchmarks._evidence_files import LogitFile, Split, random_splits, read_logits
from calibrant.base.arrays import Doubles
from calibrant.metrics import Judged, aurc, ece
from calibrant.policy import CALIBRATORS_TRIED, Policy, Selection, decision_formula, judge_logits, select
from calibrant.policy.selection import ChoiceRows, ChoiceSamples
from calibrant.posthoc import NumpyOps, fit_best_norm
from calibrant.promises.thresholds import abstaining_threshold

SIZES = {"half": 1.0, "sixth": 1 / 3}  # of the half that is fitted on
METRICS = ("nll", "ece", "aurc", "accuracy")
SPLITS, COSTLY_SPLITS = 20, 8
FORMER_LEVEL = 0.95  # of the rule before this page, shared by all candidates

Losses = Mapping[str, Doubles]


def former_rule(losses: Losses) -> str:
    """Simple ones first: a later one must beat the best so far with 95% confidence, shared by the candidates."""
    return _best_so_far(losses, NormalDist().inv_cdf(1 - (1 - FORMER_LEVEL) / len(CALIBRATORS_TRIED) / 2))


def one_error_rule(losses: Losses) -> str:
    """The same, by more than one standard error: what `calibrant fit` does."""
    return _best_so_far(losses, 1.0)


def least_rule(losses: Losses) -> str:
    """The least cross-fitted NLL, whatever its standard error."""
    return min(losses, key=lambda name: float(losses[name].mean()))


def _best_so_far(losses: Losses, errors: float) -> str:
    best = "none"
    for name, values in losses.items():
        change = values - losses[best]
        if float(change.mean()) + errors * float(change.std()) / math.sqrt(len(change)) < 0:
            best = name
    return best


RULES: dict[str, Callable[[Losses], str]] = {
    "95%, shared": former_rule,
    "one standard error": one_error_rule,
    "least": least_rule,
}


def measure_repairs(data: Path, file: LogitFile, seed: int) -> dict[str, Any]:
    """Every repair on every split: ``sizes`` to ``splits``, each with the metrics by repair and the choices."""
    logits, labels = read_logits(data, file.file)
    count = COSTLY_SPLITS if file.costly else SPLITS
    sizes = {
        name: [_measure_split(_smaller(split, share)) for split in random_splits(logits, labels, count, seed)]
        for name, share in SIZES.items()
    }
    return {"samples": len(labels), "classes": logits.shape[1], "splits": count, "seed": seed, "sizes": sizes}


def _smaller(split: Split, share: float) -> Split:
    """The same split with only the first ``share`` of the rows to fit on."""
    count = round(share * len(split.fit_labels))
    return split._replace(fit_logits=split.fit_logits[:count], fit_labels=split.fit_labels[:count])


def _measure_split(split: Split) -> dict[str, Any]:
    """Metrics on the test half: of no repair, each calibrator, logit normalisation, and the automatic choice."""
    z, y = split.test_logits, split.test_labels
    plain = judge_logits(z, y)
    metrics = {"none": _metrics(plain)}
    for name, make in CALIBRATORS_TRIED.items():
        calibrator = make().fit(split.fit_logits, split.fit_labels)
        metrics[name] = _metrics(judge_logits(calibrator.transform(z), y))
    norm = fit_best_norm(split.fit_logits, split.fit_labels)
    score = plain.confidence if norm.p_ is None else norm.score(z)
    metrics["normalisation"] = {"aurc": aurc(score, plain.correct)}
    selection = _select(split)
    metrics["auto"] = _automatic(selection, split)
    losses = {name: judged.nll for name, judged in selection.judged.items() if judged.nll is not None}
    choices = {title: rule(losses) for title, rule in RULES.items()}
    chosen = "none" if selection.calibrator is None else selection.calibrator.name
    if chosen != choices["one standard error"]:
        raise RuntimeError(f"select chose {chosen}, its rule as written here {choices['one standard error']}")
    return {"metrics": metrics, "choices": choices, "score": str(selection.score), "p": norm.p_}


def _metrics(judged: Judged) -> dict[str, float]:
    assert judged.nll is not None
    return {
        "nll": float(judged.nll.mean()),
        "ece": ece(judged.confidence, judged.correct),
        "aurc": aurc(judged.confidence, judged.correct),
        "accuracy": float(judged.correct.mean()),
    }


def _select(split: Split) -> Selection:
    """What `calibrant fit` would choose on these rows."""
    count = len(split.fit_labels)
    rows = ChoiceRows(
        split.fit_logits, split.fit_labels, np.arange(count), np.zeros(count), np.zeros(count, dtype=np.str_)
    )
    return select(ChoiceSamples(rows, 1), "logits", quick=True)


def _automatic(selection: Selection, split: Split) -> dict[str, float]:
    """The metrics of the chosen calibrator, ranked by the chosen score."""
    z, y = split.test_logits, split.test_labels
    repaired = z if selection.calibrator is None else selection.calibrator.transform(z)
    judged = judge_logits(repaired, y)
    policy = Policy.model_construct(
        num_classes=z.shape[1],
        class_names=None,
        takes="logits",
        kind="classification",
        calibrator=selection.calibrator,
        score=selection.score,
        threshold=abstaining_threshold("best", 0.05, 0.95),
    )
    score = np.asarray(decision_formula(policy, NumpyOps(), z.astype(np.float64)).score)[:, 0]
    return _metrics(judged) | {"aurc": aurc(score, judged.correct)}


def mean_over_splits(splits: list[dict[str, Any]], repair: str, metric: str) -> float:
    """The mean of a metric with a repair."""
    return float(np.mean([split["metrics"][repair][metric] for split in splits]))


def gains(splits: list[dict[str, Any]], repair: str, metric: str) -> list[float]:
    """The change that a repair makes on every split."""
    return [split["metrics"][repair][metric] - split["metrics"]["none"][metric] for split in splits]


def regret(splits: list[dict[str, Any]], rule: str, metric: str = "nll") -> float:
    """How much more a rule, or one repair always, costs on average than the repair that is best on this file."""
    fixed = {name: mean_over_splits(splits, name, metric) for name in ("none", *CALIBRATORS_TRIED)}
    if rule in fixed:
        return fixed[rule] - min(fixed.values())
    values = [split["metrics"][split["choices"][rule]][metric] for split in splits]
    return float(np.mean(values)) - min(fixed.values())
