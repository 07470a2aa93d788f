"""Calibrant: classifiers whose confidence can be trusted.

See the README for a tour; `calibrant.losses` holds the training losses, `lens` shows what they train towards.
"""

from calibrant import losses
from calibrant.lens import Lens, activity, lens
from calibrant.predictions import Predictions

__version__ = "0.1.0"
__all__ = ["Lens", "Predictions", "activity", "lens", "losses"]
