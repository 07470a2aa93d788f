"""What a classifier said and what was true: the boundary between models and everything after them.

`predictions` has the type; `memory` and `files` where its columns are, in memory or in files; `paths` which files a
path means, `columns` which of their columns are ours, `labels` which class a label means; `binary` what one column
of two classes means; `schema` and `values` what is accepted, `digits` how finely probabilities were written; `formats`
has one module per format.
"""

from calibrant.predictions.binary import customary_positive, is_one_column, widen
from calibrant.predictions.digits import FLOOR, Digits, log_probabilities
from calibrant.predictions.files import FileStore, format_of
from calibrant.predictions.memory import BATCH
from calibrant.predictions.paths import Remote, is_remote
from calibrant.predictions.predictions import Predictions
from calibrant.predictions.schema import IGNORED, UNITS, class_name

__all__ = ["Predictions"]
