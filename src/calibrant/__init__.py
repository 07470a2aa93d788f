"""Calibrant: classifiers whose confidence can be trusted.

See the README for a tour: `audit` tells the truth about a model's confidence, `calibrant.metrics` measures it,
`calibrant.posthoc` repairs it, `Policy` answers or abstains with a risk that holds, `calibrant.losses` holds the
training losses, `lens` shows what they train towards.

Importing this imports nothing else: every name is loaded when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from calibrant._lazy import loader

if TYPE_CHECKING:
    from calibrant import losses
    from calibrant._lens import Lens, activity, lens
    from calibrant.auditing.audit import Audit, audit
    from calibrant.predictions import Predictions
    from calibrant.selective import Policy

__version__ = "0.1.0"

__all__ = ["Audit", "Lens", "Policy", "Predictions", "activity", "audit", "lens", "losses"]

__getattr__, __dir__ = loader(
    __name__,
    {
        "Audit": "auditing.audit",
        "Lens": "_lens",
        "Policy": "selective",
        "Predictions": "predictions",
        "activity": "_lens",
        "audit": "auditing.audit",
        "lens": "_lens",
    }
    | {name: name for name in ("data", "export", "losses", "metrics", "models", "posthoc", "report", "selective")},
    extras={"_lens": ("train", "torch")},
)
