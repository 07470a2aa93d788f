"""Policies, which answer or abstain.

`fit` reads and checks what is asked of it, chooses calibrator and score (`selection`), finds the threshold, fits
`prediction_sets` where they are asked for, and notes the `evidence`. The result is a `policy`: a `rule`, which has the
formula, and what it says of itself. `module` is the same in PyTorch, `file` the same on disk, each entry checked by
`file_entries`, and `outcome` what a policy does to predictions.
"""
