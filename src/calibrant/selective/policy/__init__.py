"""Policies, which answer or abstain.

`request` reads what is asked of a fit. `fit` runs it: it collects samples (`holdout`), chooses calibrator and score on
them (`selection`), finds the threshold, fits prediction sets where they are asked for (`set_fitting`), and notes the
`evidence` and a `reference` for a watch later. The result is a `policy`: a `rule`, which `promise_words` helps to
describe, with its formula in `decision`. `module` is the same in PyTorch, and `outcome` what a policy does to
predictions.
"""
