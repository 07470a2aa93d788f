"""Where to accept, so that what is promised holds.

`search` counts what every threshold accepts and makes the tests, `planning` decides beforehand which tests; `menu` is
what else could be promised. `risk` has the thresholds of a risk or a coverage, `costs` that of a mean cost; those of a
policy are found over independent `samples` (by group or not), over `images`, by predicted class (`classes`), or for the
`mean_loss` of a promise about recall, a cost or an expected risk.
"""
