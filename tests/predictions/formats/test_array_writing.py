"""What is written block by block is what NumPy loads."""

import io

import numpy as np

from calibrant import Predictions
from calibrant.predictions.formats.array_writing import column_blocks, write_array, write_column

LOGITS = np.random.default_rng(0).standard_normal((5, 3)).astype(np.float32)


def test_numpy_loads_arrays_and_columns():
    given = Predictions.from_logits(LOGITS, [0, 1, 2, 0, 1], ids=["a", "bb", "c", "d", "e"])
    for write, expected in (
        (lambda file: write_array(file, LOGITS.T), LOGITS.T),
        (lambda file: write_column(file, given._store, "logits"), LOGITS),
        (lambda file: write_column(file, given._store, "ids"), given.ids),
    ):
        file = io.BytesIO()
        write(file)
        loaded = np.load(io.BytesIO(file.getvalue()))
        assert loaded.dtype == expected.dtype
        np.testing.assert_array_equal(loaded, expected)


def test_tokens_are_written_as_they_came():
    """[B, T, V], though they are held as [B, V, T]."""
    logits = np.arange(24.0).reshape(2, 3, 4)
    given = Predictions.from_logits(logits, np.zeros((2, 3), int), kind="tokens")
    dtype, blocks = column_blocks(given._store, "logits")
    assert dtype == np.float64
    np.testing.assert_array_equal(np.concatenate(list(blocks)), logits)
