"""What a classifier predicted and what was true: the boundary between models and everything after them.

=================  =====================================================================================================
`predictions`      the type, `Predictions`
`memory`           columns that are arrays in memory
`files`            columns that are read from files; `formats` has one module per format
`paths`            which files a path means, on this machine or elsewhere, and whether they have changed
`columns`          which of a file's columns are ours; `column_hints` has the errors where that is not clear
`class_columns`    data that are one column per class, or one column for two classes
`labels`           which class a label means
`schema`           what is known before any value is read
`values`           which values are accepted
`digits`           how finely probabilities were written
=================  =====================================================================================================
"""

from calibrant.predictions.class_columns import widen
from calibrant.predictions.digits import FLOOR, Digits, log_probabilities
from calibrant.predictions.files import FileStore, format_of
from calibrant.predictions.labels import customary_positive
from calibrant.predictions.memory import BATCH
from calibrant.predictions.paths import Remote, is_remote
from calibrant.predictions.predictions import Predictions, check_group, replace_data
from calibrant.predictions.schema import IGNORED, UNITS, class_name, is_one_column

__all__ = ["Predictions"]
