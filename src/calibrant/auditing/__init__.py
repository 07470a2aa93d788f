"""The audit of a model's confidence.

From the command to the page: `calibrant.cli.audit` opens the files and calls `audit`. That goes through each model's
predictions once (`collect`), describes each model (`document`, by `classes`, `repairs` and `findings`), compares
models, judges a policy, and puts the answer on top (`headline`). `calibrant.report.html.audit_page` draws the result.

==================  ====================================================================================================
`audit`             an audit from beginning to end
`collect`           one pass over predictions, which fills in the tables of `breakdown`
`shards`            what was collected of pieces, put together
`classes`           every class on its own: what its probability says and what happened
`repairs`           what a repair or another score would gain
`findings`          what the numbers mean, in sentences
`headline`          the answer to what was asked, what a policy does, and what to do next
`document`          the audit of one model as plain values, which a page draws
`gate`              requirements, and how they are judged by intervals
==================  ====================================================================================================
"""

from typing import TYPE_CHECKING

from calibrant.auditing.audit import Audit, audit
from calibrant.base.extras import lazy_names

if TYPE_CHECKING:
    from calibrant.auditing.breakdown import confidence_by_objectness
    from calibrant.auditing.document import reliability_series
    from calibrant.auditing.gate import Check, Judgement, check
    from calibrant.auditing.headline import CommandWords

__all__ = ["Audit", "Check", "Judgement", "audit", "check"]

__getattr__, __dir__ = lazy_names(__name__)
