"""Policies, which answer or abstain.

`request` is what is asked of a fit, checked. `fit` runs it: it chooses calibrator and score (`selection`), finds the
threshold, fits prediction sets where they are asked for (`set_fitting`), and notes the `evidence`. The result is a
`policy`: a `rule`, with its formula in `decision`. `module` is the same in PyTorch, `file` the same on disk, each entry
checked by `file_entries`, and `outcome` what a policy does to predictions.
"""
