"""Predictions of a classifier with the true labels: the boundary between models and everything after them.

=============  =========================================================================================================
`predictions`  the type, `Predictions`
`data`         what they hold: `Logits`, `Probabilities` or `Scores`
`schema`       which columns mean what, and the facts that are known before any value is read
`labels`       which class a label means
`files`        the files that a path means, and how they are opened; `formats` has arrays, tables, and tables of text
`stores`       columns in memory, and columns that are read from files; `values` has their checks
`rows`         which rows are used: those of a split, the first row of each id, those to fit on
`passes`       a pass over predictions, in pieces: in this process or on a cluster
`hints`        errors about columns, with what these probably mean by their first values
=============  =========================================================================================================
"""

from calibrant.predictions.data import (
    FLOOR,
    Data,
    Digits,
    Logits,
    Probabilities,
    Scores,
    is_one_column,
    log_probabilities,
    widen,
)
from calibrant.predictions.files import Remote, format_of, is_remote
from calibrant.predictions.passes import LOCAL, InProcess, OnRay, PassEngine, Piece
from calibrant.predictions.predictions import Predictions, check_group, has_split, refuse_weights, replace_data
from calibrant.predictions.rows import REPEAT_REMEDIES, RepeatCount, count_shared, repeat_words, resolve_repeats
from calibrant.predictions.schema import (
    IGNORED,
    OMITTABLE,
    UNITS,
    WEIGHT,
    class_name,
    customary_positive,
    number_of,
    same_class,
)
from calibrant.predictions.stores import BATCH, FileStore, describe_weights, find_oddities

__all__ = ["Predictions"]
