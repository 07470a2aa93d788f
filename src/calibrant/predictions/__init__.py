"""What a classifier said and what was true: the boundary between models and everything after them.

`Predictions` is the type. The files beside it: `core` the type; `about`, `arrays`, `text`, `checks` and `where` what it
accepts and what errors say, `hints` what they end with; `labels` and `naming` which class a label means; `store` and
`opened` where its columns live (in memory, in files), `shards`, `remote` and `columns` how files and their columns are
found, `stamps` that a file stays the same while it is read; `streams`, `members`, `arrayfile` and `tables` what array
files and tables share, `expansion` what a compressed file may become; and one file per format, `csvlines` beside `csv`.
"""

from calibrant.predictions.core import Predictions
from calibrant.predictions.opened import FileStore, format_of
from calibrant.predictions.remote import Remote, is_remote
from calibrant.predictions.store import BATCH

__all__ = ["Predictions"]
