"""Predictions of a classifier with the true labels: the boundary between models and everything after them.

=================  =====================================================================================================
`predictions`      the type, `Predictions`
`stores`           columns in memory, and columns that are read from files
`files`            the files that a path means, and how they are opened; `formats` has one module per format
`columns`          which columns of a file are used; `column_names` has what their names mean
`column_errors`    errors about columns; `proposals` has what they probably mean, `samples` what their values look like
`row_selection`    which rows are used: those of a split, and the first row of each id
`holdout`          one set as two: to fit on, and to judge by
`labels`           which class a label means
`schema`           facts that are known before any value is read
`values`           checks of the values, and the number of decimal places of probabilities
=================  =====================================================================================================
"""

from calibrant.predictions.files import Remote, format_of, is_remote
from calibrant.predictions.holdout import count_shared
from calibrant.predictions.predictions import Predictions, check_group, has_split, refuse_weights, replace_data
from calibrant.predictions.row_selection import REPEAT_REMEDIES, RepeatCount, repeat_words, resolve_repeats
from calibrant.predictions.schema import (
    IGNORED,
    OMITTABLE,
    UNITS,
    class_name,
    customary_positive,
    is_one_column,
    number_of,
    same_class,
)
from calibrant.predictions.stores import BATCH, FileStore
from calibrant.predictions.values import FLOOR, Digits, log_probabilities, widen

__all__ = ["Predictions"]
