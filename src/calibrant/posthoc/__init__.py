"""Calibration after training: fitted on held-out logits, applied to any."""

from calibrant.posthoc.base import Calibrator
from calibrant.posthoc.ensemble import EnsembleTemperatureScaling
from calibrant.posthoc.histogram import HistogramBinning
from calibrant.posthoc.isotonic import IsotonicCalibration
from calibrant.posthoc.logit_norm import LogitNorm
from calibrant.posthoc.matrix import MatrixScaling
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
