"""Calibrant: classifiers whose confidence can be trusted.

See the README for a tour: `audit` tells the truth about a model's confidence, `check` holds it to requirements,
`calibrant.metrics` measures it, `calibrant.posthoc` repairs it, `Policy` answers or abstains with a guaranteed risk,
`Monitor` watches that the guarantee holds, `calibrant.losses` has the training losses, `lens` shows what they train
towards. Every name is imported when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from calibrant.base.extras import lazy_names

if TYPE_CHECKING:
    from calibrant import data, export, losses, metrics, models, policy, posthoc, promises, report
    from calibrant._lens import Lens, activity, lens
    from calibrant.auditing.audit import Audit, audit
    from calibrant.auditing.gate import Check, check
    from calibrant.monitoring.monitor import Monitor, monitor
    from calibrant.policy import Policy
    from calibrant.predictions import Predictions

__version__ = "0.1.0"

__all__ = [
    "Audit",
    "Check",
    "Lens",
    "Monitor",
    "Policy",
    "Predictions",
    "activity",
    "audit",
    "check",
    "lens",
    "losses",
    "monitor",
]

__getattr__, __dir__ = lazy_names(__name__, extras={"calibrant._lens": ("train", "torch")})
