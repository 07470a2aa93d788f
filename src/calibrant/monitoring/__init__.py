"""A watch on a policy's promise after it is deployed.

=================  =====================================================================================================
`monitor`          `Monitor`, the watch from beginning to end
`batch`            a batch of predictions, counted; new shares of the classes, and probabilities corrected for them
`state`            the counts of all batches, saved, loaded and merged; labels that came later, read from a table
`watch`            what the counts mean
`document`         the same in words
`evidence`         tests that may be looked at after every batch: of the promise, and of changes since the fit
=================  =====================================================================================================
"""

from typing import TYPE_CHECKING

from calibrant.base.extras import lazy_names

if TYPE_CHECKING:
    from calibrant.monitoring.batch import BatchCounts, LabelShift, correct_predictions, estimate_label_shift
    from calibrant.monitoring.evidence import EvidenceProcess, confidence_sequence, rate_ratios
    from calibrant.monitoring.monitor import Monitor
    from calibrant.monitoring.state import lock_folder, read_labels

__all__ = ["LabelShift", "Monitor", "confidence_sequence", "estimate_label_shift"]

__getattr__, __dir__ = lazy_names(__name__)
