"""Selective classification: scores to rank by, thresholds with a guarantee, policies that answer or abstain.

`scores` rank predictions; `bounds`, `search`, `planning` and `thresholds` find where to accept, `policy_thresholds` and
`image_thresholds` those of a policy, `costs` that of a mean cost, `menu` what else could be promised; `promise` is what
a policy promises, `promise_request` reads what is asked for, `class_thresholds` and `promise_thresholds` find where it
holds, `promise_words` and `promise_check` say and judge it, `promise_entries` checks it in a file; `rule` is what a
policy consists of and its formula; `fit_checks` says what it is fitted on, `holdout` and `selection` choose its parts,
`policy` fits it, `reference` is what its samples looked like, `policy_file` writes it, `policy_entries` and
`policy_consistency` check a file by the types of `entry_types`, `module` is it in PyTorch, `outcome` what it does to
predictions; `set_scores` are the scores of prediction sets, `prediction_sets` what a policy has of them, `set_fitting`
fits and gives them, `set_counts` counts them, `set_entries` checks them in a file; `analysis` and `logit_analysis` are
SC's.
"""

from typing import TYPE_CHECKING

from calibrant._imports import lazy_names
from calibrant.selective.bounds import binomial_tail, coverage_interval, mean_interval, risk_interval
from calibrant.selective.costs import CostThreshold, threshold_for_cost
from calibrant.selective.holdout import FEWEST as FEWEST_FOR_CHOICE
from calibrant.selective.holdout import kept_for_choice
from calibrant.selective.logit_analysis import (
    MSPBin,
    RankStatistics,
    SortedLogits,
    normalised_given_max_logit,
    sorted_logits,
)
from calibrant.selective.outcome import FORMATS, Outcome, apply_policy
from calibrant.selective.policy import Policy
from calibrant.selective.prediction_sets import PredictionSets
from calibrant.selective.promise import Promise
from calibrant.selective.promise_check import part_numbers
from calibrant.selective.reference import bin_counts, class_counts
from calibrant.selective.rule import Decision, Decisions, decision
from calibrant.selective.scores import (
    NORMALISED,
    energy,
    margin,
    max_logit,
    msp,
    negative_entropy,
    normalised_max_logit,
)
from calibrant.selective.selection import CALIBRATORS_TRIED, Selection, judge_rows, select
from calibrant.selective.set_counts import SetCounts
from calibrant.selective.thresholds import Threshold, threshold_for_coverage, threshold_for_risk, thresholds_by_group

if TYPE_CHECKING:
    from calibrant.selective.analysis import (
        ErrorsBySource,
        MaxLogitGivenMSP,
        MethodCurve,
        Windows,
        errors_by_source,
        max_logit_given_msp,
        risk_coverage_by_method,
    )
    from calibrant.selective.policy_file import to_dict

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
