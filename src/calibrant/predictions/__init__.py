"""What a classifier said and what was true: the boundary between models and everything after them.

=================  =====================================================================================================
`predictions`      the type, `Predictions`
`memory`           columns that are arrays in memory
`files`            columns that are read from files; `formats` has one module per format
`paths`            which files a path means, on this machine or elsewhere
`columns`          what the caller says about a file's columns, and which of them are ours
`column_matching`  how our columns are found among a file's; `customary` is what others call them
`labels`           which class a label means; `binary` does so where one column is of two classes
`schema`           what is known before any value is read
`values`           which values are accepted
`digits`           how finely probabilities were written
=================  =====================================================================================================
"""

from calibrant.predictions.binary import customary_positive, is_one_column, widen
from calibrant.predictions.digits import FLOOR, Digits, log_probabilities
from calibrant.predictions.files import FileStore, format_of
from calibrant.predictions.memory import BATCH
from calibrant.predictions.paths import Remote, is_remote
from calibrant.predictions.predictions import Predictions
from calibrant.predictions.schema import IGNORED, UNITS, class_name

__all__ = ["Predictions"]
