"""Selective classification: scores to rank by, thresholds with a guarantee, policies that answer or abstain."""

from calibrant.selective.analysis import (
    ErrorsBySource,
    MaxLogitGivenMSP,
    MethodCurve,
    Windows,
    errors_by_source,
    max_logit_given_msp,
    risk_coverage_by_method,
)
from calibrant.selective.applied import FORMATS, Outcome, apply_policy, observe_batch
from calibrant.selective.bounds import binomial_tail
from calibrant.selective.formula import Decision, decision
from calibrant.selective.policy import Decisions, Policy
from calibrant.selective.policy_file import to_dict
from calibrant.selective.scores import energy, margin, max_logit, msp, negative_entropy, normalised_max_logit
from calibrant.selective.threshold import Threshold, threshold_for_coverage, threshold_for_risk, thresholds_by_group
from calibrant.selective.words import differing_names, method_sentence, some_names, threshold_row

__all__ = [
    "Decisions",
    "ErrorsBySource",
    "MaxLogitGivenMSP",
    "MethodCurve",
    "Policy",
    "Threshold",
    "Windows",
    "energy",
    "errors_by_source",
    "margin",
    "max_logit",
    "max_logit_given_msp",
    "msp",
    "negative_entropy",
    "normalised_max_logit",
    "risk_coverage_by_method",
    "threshold_for_coverage",
    "threshold_for_risk",
    "thresholds_by_group",
]
