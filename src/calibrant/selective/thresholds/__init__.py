"""Where to accept, so that what is promised holds.

`search` counts what every threshold accepts, plans the tests and makes them. `risk` has the thresholds of a risk or a
coverage, and a menu of what else could be promised. Those of a policy are found over independent `samples` (one for
all, or by group and class), over `images`, or for a promise about recall, a cost or an expected risk (`mean_loss`).
"""
