"""Policies, which answer or abstain.

`policy` has the model: what a policy holds, decides, says of itself, and its file. `formula` is what it computes,
`module` the same in PyTorch. `fit` reads what is asked of it, chooses calibrator and score (`selection`), finds the
thresholds, fits `prediction_sets` where they are asked for, and notes the `evidence`. `outcome` is what a policy does
to predictions.
"""

from calibrant.policy.evidence import bin_counts, class_counts
from calibrant.policy.formula import Decision, Decisions, decision_chunks, decision_formula
from calibrant.policy.outcome import FITTED_ON_THESE, FORMATS, Outcome, apply_policy
from calibrant.policy.policy import Policy
from calibrant.policy.selection import CALIBRATORS_TRIED, Selection, judge_logits, select, take_for_choice

__all__ = ["Decisions", "Policy"]
