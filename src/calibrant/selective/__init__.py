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
from calibrant.selective.policy import Decisions, Policy
from calibrant.selective.scores import energy, margin, max_logit, msp, negative_entropy, normalised_max_logit
from calibrant.selective.threshold import Threshold, threshold_for_coverage, threshold_for_risk, thresholds_by_group

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
