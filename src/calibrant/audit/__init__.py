"""`audit`: the truth about a model's confidence, from a set of predictions."""

from calibrant.audit.core import Audit, audit

__all__ = ["Audit", "audit"]
