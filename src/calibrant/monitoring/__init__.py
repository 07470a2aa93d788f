"""A watch on a policy's promise after it is deployed.

`evidence` and `exchangeability` have the tests that may be looked at after every batch, `label_shift` the correction of
priors; `batch` counts predictions, `late_labels` reads labels that came afterwards, `state` keeps the counts, `watch`
says what they mean, `document` says it in words, `monitor` is all of it.
"""

from typing import TYPE_CHECKING

from calibrant._imports import lazy_names

if TYPE_CHECKING:
    from calibrant.monitoring.batch import BatchCounts, corrected_predictions
    from calibrant.monitoring.evidence import EvidenceProcess, confidence_sequence, rate_ratios
    from calibrant.monitoring.label_shift import LabelShift, estimate_label_shift
    from calibrant.monitoring.late_labels import read_labels
    from calibrant.monitoring.monitor import Monitor
    from calibrant.monitoring.state import locked

__all__ = ["LabelShift", "Monitor", "confidence_sequence", "estimate_label_shift"]

__getattr__, __dir__ = lazy_names(__name__)
