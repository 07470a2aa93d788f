"""Calibration after training: fitted on held-out logits, applied to any.

=================  =====================================================================================================
`base`             what all calibrators share: the stream of logits, checks, state
`temperature`      one temperature; `ensemble` mixes it with the model's own and a uniform distribution
`affine`           a weight and an offset for each class, or a matrix
`binning`          histogram binning and isotonic regression
`logit_norm`       logit normalisation, which ranks and does not calibrate
`crossfit`         the only cross-fitting of the project
`scores`           what ranks predictions by confidence
`ops`              the operations in which formulas are written once, for NumPy, PyTorch and ONNX
=================  =====================================================================================================
"""

from calibrant.posthoc.affine import MatrixScaling, VectorScaling
from calibrant.posthoc.base import WIDE, Calibrator, logits_of
from calibrant.posthoc.binning import HistogramBinning, IsotonicCalibration
from calibrant.posthoc.crossfit import (
    FOLDS,
    Ranked,
    Repaired,
    assign_folds,
    crossfit,
    crossfit_all,
    crossfit_ranks,
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
from calibrant.posthoc.ops import NumpyOps, Ops, TorchOps, log_softmax, softmax
from calibrant.posthoc.scores import NORMALISED, energy, margin, max_logit, msp, negative_entropy, normalised_max_logit
from calibrant.posthoc.temperature import TemperatureScaling

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
    "energy",
    "margin",
    "max_logit",
    "msp",
    "negative_entropy",
    "normalised_max_logit",
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
