"""Calibration after training: fitted on held-out logits, applied to any."""

from calibrant.posthoc.logit_norm import LogitNorm
from calibrant.posthoc.temperature import TemperatureScaling

__all__ = ["LogitNorm", "TemperatureScaling"]
