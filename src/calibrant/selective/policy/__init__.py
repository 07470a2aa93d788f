"""Policies, which answer or abstain.

A fit reads a `request`, collects samples (`holdout`), chooses calibrator and score on them (`selection`), fits
prediction sets where they are asked for (`set_fitting`), and notes `evidence` and a `reference` for a watch later. The
result is a `policy`: a `rule`, described with the help of `promise_words`, whose formula is in `decision`; `module` is
the same in PyTorch, and `outcome` what it does to predictions.
"""
