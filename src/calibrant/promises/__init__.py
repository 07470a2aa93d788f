"""What a policy may promise: which loss, over which samples, shown by which test, and the thresholds that keep it.

====================  ==================================  ======================  ======================================
promise               loss, in [0, 1]                     mean over               shown by
====================  ==================================  ======================  ======================================
`risk`                the answer is wrong                 answers: all, or those  exact binomial tests in a fixed
                                                          of a group or a class   sequence, of each part at once
`precision`           the answer is wrong                 answers of a class      the same
`recall`              the sample is not answered as its   samples of the class    an exact binomial limit of the class's
                      class                                                       own samples
`cost`                the answer's cost over the highest  answers                 bets, in a fixed sequence
`expected_risk`       the sample is answered, and         samples                 conformal risk control: on average
                      wrongly                                                     over fits
====================  ==================================  ======================  ======================================

All but the last hold with the policy's confidence. `base` says what every promise can be asked, `spelling` how people
write one, `price` what it costs. `bounds` has exact limits and p-values, `thresholds` fixed sequences and their
planning, `split` which samples plan and which are tested, `parts` thresholds of groups and classes, `images` those of
pixels, `sets` prediction sets.
"""

# ruff: noqa: I001  (the order of the promises is the order in which they are listed)
from calibrant.promises.base import PROMISES, Promise
from calibrant.promises.bounds import binomial_tail, coverage_interval, risk_interval
from calibrant.promises.risk import Risk
from calibrant.promises.precision import Precision
from calibrant.promises.recall import Recall
from calibrant.promises.cost import Cost, CostThreshold, threshold_for_cost
from calibrant.promises.expected_risk import ExpectedRisk
from calibrant.promises.price import LossTally
from calibrant.promises.sets import PredictionSets, SetCounts, Sets
from calibrant.promises.spelling import parse_promises
from calibrant.promises.split import FEWEST_FOR_CHOICE, FEWEST_FOR_SCORE
from calibrant.promises.thresholds import (
    Offer,
    Threshold,
    threshold_for_coverage,
    threshold_for_risk,
    thresholds_by_group,
)

__all__ = [
    "Cost",
    "CostThreshold",
    "ExpectedRisk",
    "Precision",
    "PredictionSets",
    "Promise",
    "Recall",
    "Risk",
    "SetCounts",
    "Sets",
    "Threshold",
    "threshold_for_cost",
    "threshold_for_coverage",
    "threshold_for_risk",
    "thresholds_by_group",
]
