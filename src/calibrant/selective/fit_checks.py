"""What a policy can be fitted on, and which arguments of a fit go together."""

from __future__ import annotations

from calibrant.predictions import Predictions
from calibrant.selective.policy_thresholds import ThresholdTarget
from calibrant.selective.prediction_sets import SetTarget


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
    if group is not None and group not in predictions.group_names:
        available = ", ".join(predictions.group_names) or "none"
        raise ValueError(f"group {group!r} is not among the predictions' groups: {available}")
    if predictions.kind == "segmentation" and group is not None:
        raise ValueError("thresholds by group are for classification; for segmentation there is one for all")
    if predictions.holds == "probabilities" and score == "energy":
        raise ValueError("energy needs logits: for probabilities, which sum to 1, it is always 0")
    if predictions.kind == "segmentation" and target.method == "sgr":
        raise ValueError("sgr assumes independent samples, which pixels are not; use best or fixed-sequence")
