"""Where to accept, so that what is promised holds.

`search` counts what every threshold accepts, plans the tests and makes them; `menu` is what else could be promised.
`risk` has the thresholds of a risk or a coverage. Those of a policy are found over independent `samples` (one for all,
or by group and class), over `images`, or for the `mean_loss` of a promise about recall, a cost or an expected risk.
"""
