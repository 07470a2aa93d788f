"""Calibration after training: fitted on held-out logits, applied to any."""

from calibrant.posthoc.base import WIDE, Calibrator, logits_of
from calibrant.posthoc.binning import HistogramBinning, IsotonicCalibration
from calibrant.posthoc.crossfit import (
    FOLDS,
    Ranked,
    Repaired,
    crossfit,
    crossfit_all,
    crossfit_ranks,
    folds_of,
    rank_shares,
    ranks_by_fold,
)
from calibrant.posthoc.ensemble import EnsembleTemperatureScaling
from calibrant.posthoc.logit_norm import (
    LogitNorm,
    best_norm,
    fit_best_norm,
    msp_formula,
    normalised_max_logit_formula,
    score_rows,
    scores_by_reading,
)
from calibrant.posthoc.matrix import MatrixScaling
from calibrant.posthoc.ops import NumpyOps, Ops, TorchOps, log_softmax, softmax
from calibrant.posthoc.temperature import TemperatureScaling
from calibrant.posthoc.vector import VectorScaling

__all__ = [
    "CALIBRATORS",
    "Calibrator",
    "EnsembleTemperatureScaling",
    "HistogramBinning",
    "IsotonicCalibration",
    "LogitNorm",
    "MatrixScaling",
    "TemperatureScaling",
    "VectorScaling",
]

#: Every calibrator by the name that a policy's file calls it.
CALIBRATORS: dict[str, type[Calibrator]] = {
    method.name: method
    for method in (
        TemperatureScaling,
        EnsembleTemperatureScaling,
        VectorScaling,
        MatrixScaling,
        IsotonicCalibration,
        HistogramBinning,
    )
}
