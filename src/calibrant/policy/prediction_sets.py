"""Prediction sets fitted, given and counted: scores of true classes on samples that the calibrator did not see.

The calibrator, and the regularisation of RAPS, come from the samples of the choice; the quantile from the others. Given
the former, the latter and new samples are exchangeable, which is all that the coverage rests on. What a policy keeps of
it, `PredictionSets`, is in `calibrant.promises.sets`.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from calibrant.base.arrays import Array, as_kind_of, cache_chunks, row_slices
from calibrant.base.checks import Bools, Ints, check_finite
from calibrant.base.progress import Progress, silent
from calibrant.metrics import Doubles
from calibrant.policy.formula import check_input, decide, logits_formula
from calibrant.policy.selection import ChoiceSamples
from calibrant.posthoc import NumpyOps, softmax
from calibrant.predictions import LOCAL, PassEngine, Piece, Predictions
from calibrant.promises.sets import PredictionSets, SetCounts, Sets, choose_penalty, conformal_quantile, set_scores
from calibrant.promises.split import draw_uniform

if TYPE_CHECKING:
    from calibrant.policy.policy import Policy

MOST_NUMBERS = 2**22  # probabilities that choose the regularisation of RAPS
_FITTING, _PREDICTING, _CHOOSING = 1, 2, 3  # streams of random numbers: new samples must have different ones


def _random(seed: int, stream: int, start: int, count: int) -> Doubles:
    stream_seed = int(np.random.SeedSequence([seed, stream]).generate_state(1, np.uint64)[0] >> np.uint64(1))
    return draw_uniform(stream_seed, start, count)[:, None]


def predict_sets(policy: Policy, values: Any, start: int = 0) -> Any:
    """The sets of an array ``[N, C]``: a mask of the same shape, as `Policy.predict_sets` gives it."""
    if policy.sets is None:
        raise ValueError("the policy has no prediction sets: fit it with sets, for example sets=0.95")
    z = check_input(policy, values)
    parts = []
    for part in cache_chunks(z):
        check_finite(part)
        draw = _random(policy.sets.seed, _PREDICTING, start, len(part)) if policy.sets.randomised else None
        parts.append(policy.sets.members(NumpyOps(), _probabilities(policy, part), draw))
        start += len(part)
    return as_kind_of(values, np.concatenate(parts), keep_precision=True)


def _probabilities(policy: Policy, values: Array) -> Doubles:
    """Calibrated, ``[n, C]``."""
    return softmax(NumpyOps(), logits_formula(policy, NumpyOps(), values.astype(np.float64))[1])


class SetFit:
    """The fit of prediction sets, beside that of the threshold, for a policy whose calibrator is chosen.

    The samples of the choice choose the regularisation of RAPS where it is not given.
    """

    def __init__(self, policy: Policy, target: Sets, choice: ChoiceSamples | None, seed: int) -> None:
        self.policy, self.target, self.seed = policy, target, seed
        self.penalty, self.free_ranks = target.penalty or 0.0, target.free_ranks or 0
        if target.has_choice:
            assert choice is not None
            stride = -(-choice.rows.values.size // MOST_NUMBERS)
            values, labels = choice.rows.values[::stride], choice.rows.labels[::stride]
            slices = row_slices(len(values), values.shape[1])
            probabilities = np.concatenate([_probabilities(policy, values[rows]) for rows in slices])
            draw = _random(seed, _CHOOSING, 0, len(labels)) if target.randomised else None
            self.penalty, self.free_ranks = choose_penalty(
                probabilities, labels, target.level, target.penalty, target.free_ranks, draw
            )
        self.scores: list[tuple[Doubles, Ints]] = []  # of the true classes, and these

    def for_piece(self) -> SetFit:
        """The same fit, which has no scores yet."""
        fit = copy.copy(self)
        fit.scores = []
        return fit

    def add(self, numbers: Ints, probabilities: Doubles, labels: Ints) -> None:
        """Take the scores of the true classes of samples that are not of the choice.

        They are given by their positions in the predictions, rising ``[n]``, calibrated probabilities and labels.
        """
        if not len(numbers):
            return
        draw, start = None, int(numbers[0])
        if self.target.randomised:
            draw = _random(self.seed, _FITTING, start, int(numbers[-1]) - start + 1)[numbers - start]
        scores = set_scores(NumpyOps(), self.target.method, probabilities, self.penalty, self.free_ranks, draw)
        self.scores.append((scores[np.arange(len(labels)), labels], labels.astype(np.int64)))

    def finish(self) -> PredictionSets:
        """The sets with their quantiles."""
        scores = np.concatenate([np.empty(0), *(scores for scores, _ in self.scores)])
        labels = np.concatenate([np.empty(0, np.int64), *(labels for _, labels in self.scores)])
        target, groups = self.target, [scores]
        if target.method == "class-conditional":
            groups = [scores[labels == k] for k in range(self.policy.num_classes)]
        return PredictionSets(
            target.level,
            target.method,
            tuple(conformal_quantile(group, target.level) for group in groups),
            tuple(map(len, groups)),
            self.penalty,
            self.free_ranks,
            target.randomised,
            self.seed,
        )


def count_sets(
    policy: Policy,
    predictions: Predictions,
    seed: int,
    share: float,
    progress: Progress = silent,
    engine: PassEngine = LOCAL,
) -> PredictionSets:
    """The sets of a policy, with what they are on the samples of the quantile."""
    assert policy.sets is not None
    counts = SetCounts(policy.num_classes)
    work = partial(count_sets_of, policy=policy, seed=seed, share=share)
    for part in engine.run(work, predictions, "reading for the sets", progress):
        counts.absorb(part)
    return replace(policy.sets, counts=counts)


def count_sets_of(piece: Piece, policy: Policy, seed: int, share: float) -> Iterator[SetCounts]:
    """What the sets are on those samples of a piece."""
    counts = SetCounts(policy.num_classes)
    for start, batch in piece.batches():
        rows = np.flatnonzero(draw_uniform(seed, start, len(batch)) >= share)
        if len(rows):
            values, names = batch.data.values, None if policy.group is None else batch.groups[policy.group]
            members: Bools = predict_sets(policy, values, start)
            accept = decide(policy, values, names).accept
            counts.add(members[rows], accept[rows], batch.labels[rows], batch.ignore_index)
    yield counts
