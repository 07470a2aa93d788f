"""Prediction sets in a policy's file: what each entry must be, and that they agree with each other."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from pydantic import Field, ValidatorFunctionWrapHandler, field_validator

from calibrant._validation import LARGEST_SEED
from calibrant.selective.policy_file.entry_types import Entries, Flag, OpenShare, must_be
from calibrant.selective.sets.conformal import METHODS, RANKED
from calibrant.selective.sets.counts import SetCounts
from calibrant.selective.sets.prediction_sets import LARGEST_PENALTY, PredictionSets

if TYPE_CHECKING:
    from calibrant.selective.policy.rule import Rule

EVERY_SET = "all"  # an infinite quantile, which JSON has no number for

_MOST = 10**12  # a count: a million of them still add up in 64 bits
_HIGHEST = 1e10  # more than any penalty times any rank
Quantile = Annotated[float, Field(ge=-1 - 1e-9, le=_HIGHEST), must_be(f"a number from -1 to {_HIGHEST:g}")]
Quantiles = Annotated[list[Quantile], Field(min_length=1), must_be('a list of numbers, or "all" for one of them')]
Method = Annotated[Literal["lac", "aps", "raps", "class-conditional"], must_be(f"one of {', '.join(METHODS)}")]
Penalty = Annotated[float, Field(ge=0, le=LARGEST_PENALTY), must_be(f"a number from 0 to {LARGEST_PENALTY:g}")]
Seed = Annotated[int, Field(ge=0, le=LARGEST_SEED), must_be("a whole number from 0 to 2**63 - 1")]
Count = Annotated[int, Field(ge=0, le=_MOST), must_be(f"a whole number from 0 to {_MOST:,}")]
Counts = Annotated[list[Count], Field(min_length=1), must_be(f"a list of whole numbers from 0 to {_MOST:,}")]


class _Counts(Entries):
    sizes: Counts
    abstained: Counts
    class_samples: Counts
    class_covered: Counts
    abstained_covered: Count


class SetEntries(Entries):
    """The entries of prediction sets, each checked on its own; what the sets say of themselves is not read."""

    level: OpenShare
    method: Method
    quantiles: Quantiles
    samples: Counts
    penalty: Penalty = 0.0
    free_ranks: Count = 0
    randomised: Flag = False
    seed: Seed = 0
    counts: _Counts | None = None
    summary: Any = None
    seen: Any = None

    @field_validator("quantiles", mode="wrap")
    @classmethod
    def _accept_word(cls, value: Any, handler: ValidatorFunctionWrapHandler) -> Any:
        if not isinstance(value, list):
            return handler(value)
        finite = [0.0 if quantile == EVERY_SET else quantile for quantile in value]
        numbers = handler(finite)
        return [math.inf if old == EVERY_SET else new for old, new in zip(value, numbers, strict=True)]

    def restore(self, num_classes: int) -> PredictionSets:
        """The sets of a policy for that many classes."""
        counts = None
        if self.counts is not None:
            for name, most in (("sizes", 1), ("abstained", 1), ("class_samples", 0), ("class_covered", 0)):
                length = len(getattr(self.counts, name))
                if length > num_classes + most:
                    raise ValueError(f"sets.counts.{name} must have {num_classes + most} entries at most, got {length}")
            counts = SetCounts(num_classes, **dict(self.counts))
        entries = {name: value for name, value in dict(self).items() if name not in ("counts", "summary", "seen")}
        entries |= {"quantiles": tuple(self.quantiles), "samples": tuple(self.samples), "counts": counts}
        return PredictionSets(**entries)


def sets_dict(sets: PredictionSets, class_names: tuple[str, ...] | None) -> dict[str, Any]:
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


def check_sets(rule: Rule) -> None:
    """Raise a ValueError where the entries of the sets contradict each other, or the policy."""
    sets = rule.sets
    if sets is None:
        return
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
    if sets.counts is not None:
        _check_counts(sets.counts)


def _check_counts(counts: SetCounts) -> None:
    samples, silent = counts.samples, int(counts.abstained.sum())
    if int(counts.class_samples.sum()) != samples:
        raise ValueError(f"sets.counts: class_samples must add up to the {samples} of sizes")
    if (counts.class_covered > counts.class_samples).any():
        raise ValueError("sets.counts: class_covered must be at most class_samples")
    if (counts.abstained > counts.sizes).any() or counts.abstained_covered > silent:
        raise ValueError("sets.counts: what is abstained on must be at most all")
