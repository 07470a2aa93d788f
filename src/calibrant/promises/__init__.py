"""What a policy may promise: which loss, over which samples, shown by which test, and the thresholds that keep it.

===============  =======================================================================================================
`bounds`         what a number of errors says about the risk behind it: exact limits and p-values
`thresholds`     fixed sequences of tests and their planning: where to accept, so that a risk holds
`split`          which samples choose and plan, and which are tested
`parts`          thresholds for all samples, or for groups and predicted classes that share the chance to fail
`images`         thresholds for the pixels of images, by betting
`sets`           prediction sets: their scores and quantiles
`promise`        what is promised, and whether it was kept
`price`          what a promise costs: the precision of a recall, the recall of a precision, the coverage of a risk
===============  =======================================================================================================
"""

from calibrant.promises.bounds import binomial_tail, bounded_mean_interval, coverage_interval, risk_interval
from calibrant.promises.mean_loss import CostThreshold, threshold_for_cost
from calibrant.promises.promise import Promise
from calibrant.promises.sets import PredictionSets, SetCounts
from calibrant.promises.split import FEWEST_FOR_CHOICE, FEWEST_FOR_SCORE
from calibrant.promises.thresholds import (
    Offer,
    Threshold,
    threshold_for_coverage,
    threshold_for_risk,
    thresholds_by_group,
)

__all__ = [
    "CostThreshold",
    "PredictionSets",
    "Promise",
    "SetCounts",
    "Threshold",
    "threshold_for_cost",
    "threshold_for_coverage",
    "threshold_for_risk",
    "thresholds_by_group",
]
