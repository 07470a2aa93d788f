"""What serves the reproduction of papers alone.

`logit_statistics` and `rankings` are the analyses of the paper SC.
"""

from calibrant.papers.logit_statistics import (
    MaxLogitGivenMSP,
    MSPBin,
    RankStatistics,
    SortedLogits,
    Windows,
    max_logit_given_msp,
    normalised_given_max_logit,
    sorted_logits,
)
from calibrant.papers.rankings import ErrorsBySource, MethodCurve, errors_by_source, risk_coverage_by_method

__all__ = [
    "ErrorsBySource",
    "MSPBin",
    "MaxLogitGivenMSP",
    "MethodCurve",
    "RankStatistics",
    "SortedLogits",
    "Windows",
    "errors_by_source",
    "max_logit_given_msp",
    "normalised_given_max_logit",
    "risk_coverage_by_method",
    "sorted_logits",
]
