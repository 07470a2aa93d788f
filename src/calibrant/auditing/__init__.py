"""The audit of a model's confidence.

`collect` goes through predictions once and fills in `breakdown`, `shards` does so on a cluster; `repairs`, `findings`,
`repair_findings` and `policy_check` judge, `headline` answers what was asked, `next_step` says what to do, `document`
is what a page draws, `audit` puts them together. `gate` judges every `requirement` by its interval, `object_size` is of
images whose objects are known by their size.
"""

from typing import TYPE_CHECKING

from calibrant._imports import lazy_names
from calibrant.auditing.audit import Audit, audit

if TYPE_CHECKING:
    from calibrant.auditing.document import reliability_series
    from calibrant.auditing.gate import Check, Judgement, check
    from calibrant.auditing.next_step import CommandWords
    from calibrant.auditing.object_size import confidence_by_objectness
    from calibrant.auditing.shards import collect_on_ray

__all__ = ["Audit", "Check", "Judgement", "audit", "check"]

__getattr__, __dir__ = lazy_names(__name__)
