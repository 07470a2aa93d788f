"""Calibration after training: fitted on held-out logits, applied to any."""

from typing import TYPE_CHECKING

from calibrant._imports import lazy_names
from calibrant.posthoc.base import Calibrator
from calibrant.posthoc.crossfit import FOLDS, Ranked, crossfit, crossfit_ranks, folds_of, rank_shares, ranks_by_fold
from calibrant.posthoc.ensemble import EnsembleTemperatureScaling
from calibrant.posthoc.histogram import HistogramBinning
from calibrant.posthoc.isotonic import IsotonicCalibration
from calibrant.posthoc.logit_norm import LogitNorm, msp_formula, normalised_max_logit_formula, score_rows
from calibrant.posthoc.matrix import MatrixScaling
from calibrant.posthoc.ops import NumpyOps, Ops, log_softmax, softmax
from calibrant.posthoc.stream import FLOOR, WIDE
from calibrant.posthoc.temperature import TemperatureScaling
from calibrant.posthoc.vector import VectorScaling

if TYPE_CHECKING:
    from calibrant.posthoc.torch_ops import TorchOps

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
    one.name: one
    for one in (
        TemperatureScaling,
        EnsembleTemperatureScaling,
        VectorScaling,
        MatrixScaling,
        IsotonicCalibration,
        HistogramBinning,
    )
}

__getattr__, __dir__ = lazy_names(__name__, extras={"calibrant.posthoc.torch_ops": ("train", "torch")})
