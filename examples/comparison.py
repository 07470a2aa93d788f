"""What the examples share: train with cross-entropy and with another loss, audit both, print a line for each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from calibrant import Audit, Predictions, audit
from calibrant.losses import Loss, get


def compare(train: Callable[..., Predictions], loss: Loss, seed: int, **options: Any) -> dict[str, Audit]:
    """Train twice and audit the predictions, which are saved as ``ce.npz`` and under the name of the other method.

    Args:
        train: takes a loss, a seed and the options; returns predictions for data that it did not train on.
        loss: any Calibrant loss but cross-entropy.
        seed: passed to ``train``; the same for both losses.
        **options: passed to ``train``.

    Returns:
        The audit of cross-entropy, then that of the other loss.
    """
    audits = {}
    for name, each in (("cross-entropy", get("ce", reduction=loss.reduction)), (type(loss).__name__, loss)):
        predictions = train(each, seed, **options)
        predictions.save(f"{each.method.name}.npz")  # calibrant audit ce.npz
        result = audits[name] = audit(predictions)
        accuracy, ece, (low, high) = result.metrics["accuracy"], result.metrics["ece"], result.intervals["ece"]
        print(f"{name}: accuracy {accuracy:.1%}, ECE {ece:.1%} [{low:.1%}, {high:.1%}]. {result.verdict}", flush=True)
    return audits
