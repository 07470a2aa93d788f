"""Policies, which answer or abstain.

`fit` reads and checks what is asked of it, chooses calibrator and score (`selection`), finds the threshold, fits
`prediction_sets` where they are asked for, and notes the `evidence`. The result is a `policy`: a `rule`, which has the
formula, and what it says of itself. `module` is the same in PyTorch, `file` the same on disk, each entry checked by
`file_entries`, and `outcome` what a policy does to predictions.
"""

from calibrant.policy.evidence import bin_counts, class_counts
from calibrant.policy.outcome import FITTED_ON_THESE, FORMATS, Outcome, apply_policy
from calibrant.policy.policy import Policy
from calibrant.policy.rule import Decision, Decisions, decision_chunks, decision_formula
from calibrant.policy.selection import CALIBRATORS_TRIED, Selection, judge_logits, select, take_for_choice

__all__ = ["Decisions", "Policy"]
