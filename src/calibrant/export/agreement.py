"""Does a model mean the classes that the policy means? By its own labels, and by what the policy saw at its fit.

Text of a label is matched with the policy's class names. A number is matched with names that are numbers, and is a
position where no name is a number, as in files of predictions. A value that is no class of the policy is an error.

A graph that computes a policy to the last digit is still wrong behind outputs in another order. The class of the
largest output must be the model's own label in nearly all rows, and in no other order of the classes in more rows.
Some models label by another rule than their largest output: an SVC with probability=True by its decision function, a
cost-sensitive one by a threshold. So a few other labels are counted and told, and of two classes any number that
another threshold of the same outputs explains.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.optimize import linear_sum_assignment
from scipy.stats import binomtest, chi2_contingency, rankdata

from calibrant.base.arrays import Array, class_rows
from calibrant.base.checks import Bools, Ints, listing
from calibrant.base.numbers import count
from calibrant.export.model_outputs import NO_LABEL, LogitsModel, as_name
from calibrant.export.verify import CLOSE, Agreement, CheckBatch, decide
from calibrant.metrics import Doubles
from calibrant.policy import Policy, bin_counts, class_counts
from calibrant.predictions import class_name, number_of, same_class
from calibrant.predictions.schema import codes_of

MOST_DIFFERING = 0.1  # of the rows with another label of the model's own
CHANCE = 1e-3  # a p-value below which a difference is none
SAME_RANKING = 0.99  # AUC from which on another threshold explains the labels of two classes
MOST_CLASSES = 2000  # among which another order is searched
FEWEST_ROWS = 50  # to compare with the fit


def read_labels(policy: Policy, values: Array, classes: Sequence[str] | None) -> Ints | None:
    """The positions of the classes that labels mean, ``[n]``; None where nothing says which class is which.

    ``classes`` are those of the model in the order of its columns, where they are known. Labels that are not among the
    policy's classes are a ValueError.
    """
    values, names = values.reshape(-1), policy.class_names
    distinct, inverse = np.unique(values.astype(str) if values.dtype.kind in "OSU" else values, return_inverse=True)
    texts = list(map(as_name, distinct.tolist()))
    if names is None:
        order = [str(k) for k in range(policy.num_classes)]
        if classes is not None and len(classes) == len(order) and set(classes) != set(order):
            order = list(classes)
        positions = {name: k for k, name in enumerate(order)}
        if not set(texts) <= set(order):
            return None
    else:
        numbers: dict[int | None, int] = {n: k for k, n in enumerate(map(number_of, names)) if n is not None}
        numbers = numbers or {k: k for k in range(len(names))}
        positions = {}
        for text in dict.fromkeys([*texts, *(classes or ())]):
            name = same_class(text, names)
            position = names.index(name) if name else numbers.get(number_of(text))
            if position is None:
                raise ValueError(
                    f"the model's own labels are {listing([*texts, *(classes or ())], 5)}, the policy's classes "
                    f"{listing(names, 5)}: {text!r} must be one of these"
                )
            positions[text] = position
    return np.array([positions[text] for text in texts], np.int64)[inverse.reshape(-1)]


def find_order(ours: Ints, theirs: Ints) -> tuple[dict[int, int], int]:
    """An order of the classes in which more labels would agree, beyond chance; and how many more.

    It maps classes of ours to others; empty where there is no such order.

    Example:
        >>> import numpy as np
        >>> theirs = np.arange(60) % 3
        >>> find_order(np.array([0, 2, 1])[theirs], theirs)
        ({1: 2, 2: 1}, 40)
    """
    differ = ours != theirs
    classes = np.unique(np.concatenate([ours[differ], theirs[differ]]))
    if not 2 <= len(classes) <= MOST_CLASSES:
        return {}, 0
    inside = np.isin(ours, classes) & np.isin(theirs, classes)
    counts = np.zeros((len(classes), len(classes)), np.int64)
    np.add.at(counts, tuple(np.searchsorted(classes, labels[inside]) for labels in (ours, theirs)), 1)
    rows, columns = linear_sum_assignment(counts, maximize=True)
    moved = rows != columns
    gained, lost = int(counts[rows, columns][moved].sum()), int(counts.diagonal()[moved].sum())
    if not gained or binomtest(gained, gained + lost, alternative="greater").pvalue >= CHANCE:
        return {}, 0
    return dict(zip(classes[rows[moved]].tolist(), classes[columns[moved]].tolist(), strict=True)), gained - lost


def order_words(policy: Policy, order: dict[int, int]) -> str:
    """How columns would have to be moved, in words."""
    if policy.num_classes == 2:
        return "with the two columns swapped"
    moves = [
        f"{class_name(ours, policy.class_names)} taken for {class_name(theirs, policy.class_names)}"
        for ours, theirs in order.items()
    ]
    return f"with {listing(moves, 5)}"


def check_model(
    policy: Policy, source: LogitsModel, batches: Sequence[CheckBatch], *, real: bool, settled: bool, named: bool
) -> tuple[list[Agreement], list[str]]:
    """Hold a model's outputs against its own labels; raise where they contradict them, or the policy.

    ``settled`` is whether expected answers have shown already that the outputs are right: what differs is then told
    alone; ``named`` is whether the caller knows the classes of the outputs, in order. What could not be checked comes
    second.
    """
    own, reason = _hold_against_label(policy, source, batches, real=real, settled=settled)
    mismatch = one_column_mismatch(policy, batches)
    if mismatch and not settled:
        raise ValueError(mismatch)
    checks = [] if own is None else [own]
    if settled:
        return checks, [reason] if reason and own is None else []
    alike = ""
    if real and differences_from_fit(policy, batches) == []:
        alike = ", although scores, confidences and predicted classes are distributed as at the fit"
    not_checked = [
        f"whether this is the model that the policy was fitted on: nothing ties the two together{alike}; give the "
        "expected answers to the inputs (--expected)"
    ]
    if (own is None or reason) and not (named or source.names_classes):
        names = [class_name(k, policy.class_names) for k in range(policy.num_classes)]
        order = f"the order of the classes: the model's columns are taken to be {listing(names, 5)}"
        not_checked.append(order + (f" ({reason})" if reason else ""))
    elif reason and own is None:
        not_checked.append(reason)
    if not real:
        not_checked.append("how it answers real inputs: those of the check are random")
    return checks, not_checked


def one_column_mismatch(policy: Policy, batches: Sequence[CheckBatch]) -> str:
    """That a policy was fitted on one column of logits and a model gives -z and z; empty where that is not so."""
    if policy.evidence.get("zero_class") is None or not all(_is_antisymmetric(batch.logits) for batch in batches):
        return ""
    return (
        "the policy was fitted on one column z, whose logits are 0 and z, but the model gives -z and z, which are "
        "twice as far apart: fit the policy on both columns, -z and z"
    )


def _hold_against_label(
    policy: Policy, source: LogitsModel, batches: Sequence[CheckBatch], *, real: bool, settled: bool
) -> tuple[Agreement | None, str]:
    """Hold the class of the largest output against the model's own label.

    The reason says why there is no agreement, or why it tells nothing about the order of the classes.
    """
    if source.label is None:
        return None, ""
    tensor, (label, classes) = source.logits.name, source.label
    values = np.concatenate([class_rows(batch.logits.astype(np.float64)) for batch in fresh(batches)])
    labels = np.concatenate([np.asarray(batch.own).reshape(-1) for batch in fresh(batches)])
    if len(labels) != len(values):
        return None, f"{label} is not one label for each row"
    advice = (
        "if it labels by another rule, the expected answers show that its outputs are right (--expected); if "
        f"{label} is not its own label, say so: --labels {NO_LABEL}"
    )
    try:
        own = read_labels(policy, labels, classes)
    except ValueError as error:
        if settled:
            return None, str(error)
        raise ValueError(f"{error}; {advice}") from None
    if own is None:
        return None, f"{label} has labels that are no positions, and the policy has no class names to match them with"
    # Positions among the model's own outputs tell nothing about what each output means.
    names_numbers = policy.class_names is not None and codes_of(policy.class_names) is not None
    is_position = classes is None and labels.dtype.kind not in "OSU" and not names_numbers
    reason = f"{label} gives positions, not names" if is_position else ""
    finite = np.isfinite(values).all(1)
    values, own = values[finite], own[finite]
    largest = values.max(1)
    differ: Bools = largest - values[np.arange(len(own)), own] > CLOSE * np.maximum(1.0, np.abs(largest))
    differing, rows = int(differ.sum()), count(len(own))
    if not differing:
        text = f"the class of the largest of {tensor} is the model's own label ({label}) in all {rows} rows"
        return Agreement("label output", len(own), 0, text), reason
    order, more = find_order(np.where(differ, values.argmax(1), own), own)
    by_threshold = policy.num_classes == 2 and _same_ranking(values[:, 1] - values[:, 0], own)
    if not settled and not by_threshold and (order or differing > MOST_DIFFERING * len(own)):
        if order and differing - more <= MOST_DIFFERING * len(own):
            names = [class_name(k, policy.class_names) for k in range(policy.num_classes)]
            advice = (
                f"{order_words(policy, order)}, {count(more)} more rows would agree, so put them in the order of the "
                f"policy's classes, {listing(names, 5)}"
            )
            if any(node.op_type == "SVMClassifier" for node in source.model.graph.node):
                advice += " (skl2onnx does so for an SVC with options={'raw_scores': True} and no probability=True)"
        random = "" if real else "; the inputs of this check are random, so try real ones (--inputs)"
        raise ValueError(
            f"the model contradicts itself: in {count(differing)} of {rows} rows the class of the largest of {tensor} "
            f"is not its own label ({label}); {advice}{random}"
        )
    why = ": it decides by another threshold" if by_threshold else ""
    text = (
        f"the class of the largest of {tensor} is not the model's own label ({label}) in {count(differing)} of {rows} "
        f"rows{why}"
    )
    return Agreement("label output", len(own), differing, text), reason


def _same_ranking(margin: Doubles, own: Ints) -> bool:
    """Whether the second class's rows have the larger margins: the AUC, where both classes occur."""
    positives = int(own.sum())
    negatives = len(own) - positives
    if not positives or not negatives:
        return False
    area = (rankdata(margin)[own == 1].sum() - positives * (positives + 1) / 2) / (positives * negatives)
    return bool(area >= SAME_RANKING)


def fresh(batches: Sequence[CheckBatch]) -> list[CheckBatch]:
    """The batches without those that repeat rows."""
    return [batch for batch in batches if not batch.repeats]


def _is_antisymmetric(logits: Array) -> bool:
    """Whether two columns are -z and z."""
    values = logits.astype(np.float64)
    scale = np.abs(values).max(1)
    return values.shape[1] == 2 and bool((np.abs(values.sum(1)) <= CLOSE * scale).all() and scale.any())


def differences_from_fit(policy: Policy, batches: Sequence[CheckBatch]) -> list[str] | None:
    """Which of scores, confidences and predicted classes are distributed unlike those of the fit, beyond chance.

    None where the policy has no reference, or there are too few rows.
    """
    reference: Any = policy.evidence.get("reference")
    if reference is None or policy.kind != "classification" or policy.abstains:
        return None
    answers = [decide(policy, batch.logits, batch.group) for batch in fresh(batches) if np.isfinite(batch.logits).all()]
    if sum(len(answer.label) for answer in answers) < FEWEST_ROWS:
        return None
    score, confidence, label = (
        np.concatenate([np.asarray(getattr(answer, name))[:, 0] for answer in answers])
        for name in ("score", "confidence", "label")
    )
    counts = {
        "scores": (reference["score"]["counts"], bin_counts(score, reference["score"]["edges"])),
        "confidences": (reference["confidence"]["counts"], bin_counts(confidence, reference["confidence"]["edges"])),
        "predicted classes": (reference["predicted"]["counts"], class_counts(label, reference["predicted"]["classes"])),
    }
    return [name for name, pair in counts.items() if _p_value(*pair) < CHANCE / len(counts)]


def _p_value(reference: Sequence[int], counts: Array) -> float:
    """The chance of two sets of counts so different, if both are draws from one distribution."""
    table = np.array([reference, counts], np.float64)
    table = table[:, table.sum(0) > 0]
    return 1.0 if table.shape[1] < 2 else float(chi2_contingency(table).pvalue)
