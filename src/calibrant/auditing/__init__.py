"""The audit: collecting in one pass, breakdowns, repairs, findings, the document that a page draws."""

from typing import TYPE_CHECKING

from calibrant._imports import lazy_names
from calibrant.auditing.audit import Audit, audit

if TYPE_CHECKING:
    from calibrant.auditing.document import reliability_series
    from calibrant.auditing.on_ray import collect_on_ray

__all__ = ["Audit", "audit"]

__getattr__, __dir__ = lazy_names(__name__)
