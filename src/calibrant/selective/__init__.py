"""Selective classification: scores to rank by, thresholds with a guarantee, policies that answer or abstain.

In the order of imports:

===============  =======================================================================================================
`scores`         what ranks predictions by confidence
`bounds`         what a number of errors says about the risk behind it: exact limits and p-values
`thresholds`     where to accept, so that the promise holds
`promise`        what a policy promises, and whether a promise was kept
`price`          what a promise costs: the precision of a recall, the recall of a precision, the coverage of a risk
`sets`           prediction sets: their scores and quantiles
`policy`         fitting, deciding, the outcome of decisions, and policies on disk
===============  =======================================================================================================

`rankings` and `logit_statistics` are the analyses of the paper SC.
"""

from typing import TYPE_CHECKING

from calibrant.base.extras import lazy_names
from calibrant.selective.bounds import binomial_tail, bounded_mean_interval, coverage_interval, risk_interval
from calibrant.selective.policy.evidence import bin_counts, class_counts
from calibrant.selective.policy.outcome import FITTED_ON_THESE, FORMATS, Outcome, apply_policy
from calibrant.selective.policy.policy import Policy
from calibrant.selective.policy.prediction_sets import SetCounts
from calibrant.selective.policy.rule import Decision, Decisions, decision_chunks, decision_formula
from calibrant.selective.policy.selection import CALIBRATORS_TRIED, Selection, judge_logits, select, take_for_choice
from calibrant.selective.promise import Promise
from calibrant.selective.scores import (
    NORMALISED,
    energy,
    margin,
    max_logit,
    msp,
    negative_entropy,
    normalised_max_logit,
)
from calibrant.selective.sets import PredictionSets
from calibrant.selective.thresholds.mean_loss import CostThreshold, threshold_for_cost
from calibrant.selective.thresholds.risk import (
    Offer,
    Threshold,
    threshold_for_coverage,
    threshold_for_risk,
    thresholds_by_group,
)
from calibrant.selective.thresholds.samples import FEWEST_FOR_CHOICE, FEWEST_FOR_SCORE

if TYPE_CHECKING:
    from calibrant.selective.logit_statistics import (
        MaxLogitGivenMSP,
        MSPBin,
        RankStatistics,
        SortedLogits,
        Windows,
        max_logit_given_msp,
        normalised_given_max_logit,
        sorted_logits,
    )
    from calibrant.selective.policy.file import to_dict
    from calibrant.selective.rankings import ErrorsBySource, MethodCurve, errors_by_source, risk_coverage_by_method

__all__ = [
    "CostThreshold",
    "Decisions",
    "ErrorsBySource",
    "MSPBin",
    "MaxLogitGivenMSP",
    "MethodCurve",
    "Policy",
    "PredictionSets",
    "Promise",
    "RankStatistics",
    "SetCounts",
    "SortedLogits",
    "Threshold",
    "Windows",
    "energy",
    "errors_by_source",
    "margin",
    "max_logit",
    "max_logit_given_msp",
    "msp",
    "negative_entropy",
    "normalised_given_max_logit",
    "normalised_max_logit",
    "risk_coverage_by_method",
    "sorted_logits",
    "threshold_for_cost",
    "threshold_for_coverage",
    "threshold_for_risk",
    "thresholds_by_group",
]

__getattr__, __dir__ = lazy_names(__name__)
