"""Calibrant: classifiers whose confidence can be trusted.

See the README for a tour: `audit` tells the truth about a model's confidence, `calibrant.metrics` measures it,
`calibrant.posthoc` repairs it, `Policy` answers or abstains with a risk that holds, `calibrant.losses` holds the
training losses, `lens` shows what they train towards.
"""

__version__ = "0.1.0"

from calibrant import losses
from calibrant.audit import Audit, audit
from calibrant.lens import Lens, activity, lens
from calibrant.predictions import Predictions
from calibrant.selective import Policy

__all__ = ["Audit", "Lens", "Policy", "Predictions", "activity", "audit", "lens", "losses"]
