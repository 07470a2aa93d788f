"""What a classifier said and what was true: the boundary between models and everything after them.

`Predictions` is the type. The files beside it: `core` the type, `arrays` and `checks` what it accepts, `hints` what
errors end with, `store` and `opened` where its columns live (in memory, in files), `shards`, `columns` how files and
their columns are found, `members` and `tables` what array files and tables share, and one file per format.
"""

from calibrant.predictions.core import Predictions

__all__ = ["Predictions"]
