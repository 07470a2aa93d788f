"""Sizes from the footer of a Parquet file; the oracle is pyarrow's own reading of sound files."""

import contextlib
import io
import tempfile

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from calibrant.base import parquet
from calibrant.base.parquet import column_chunks
from tests.helpers.errors import facts

TABLE = pa.table(
    {
        "a.b": list(range(50)),
        "lists": [[1.0, None], []] * 25,
        "records": [{"k": 1, "z": ["a"]}] * 50,
        "text": ["\u00e9"] * 50,
    }
)


@contextlib.contextmanager
def written(**options):
    with tempfile.TemporaryFile() as file:
        pq.write_table(TABLE, file, **options)
        file.flush()
        yield file


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"row_group_size": 7},
        {"use_dictionary": False, "compression": "none"},
        {"write_page_index": True, "write_page_checksum": True},
        {"data_page_version": "2.0", "write_statistics": False},
    ],
)
def test_sizes_are_those_of_pyarrow(options):
    with written(**options) as file:
        metadata = pq.read_metadata(file)
        groups = [metadata.row_group(i) for i in range(metadata.num_row_groups)]
        expected = [
            (column.path_in_schema, column.num_values, column.total_uncompressed_size, column.total_compressed_size)
            for group in groups
            for column in (group.column(i) for i in range(metadata.num_columns))
        ]
        assert [(".".join(chunk.path), *chunk[1:]) for chunk in column_chunks(file)] == expected


def test_damaged_footers_are_refused_or_read():
    """pyarrow's own metadata end the process on some of these."""
    with written() as file:
        file.seek(0)
        sound = file.read()
    random = np.random.default_rng(0)
    length = int.from_bytes(sound[-8:-4], "little")
    refused = 0
    for _ in range(400):
        damaged = bytearray(sound)
        for _ in range(int(random.integers(1, 4))):
            damaged[int(random.integers(len(sound) - 8 - length, len(sound)))] = int(random.integers(256))
        with tempfile.TemporaryFile() as file:
            file.write(damaged)
            file.flush()
            try:
                assert all(min(chunk[1:]) >= 0 for chunk in column_chunks(file))
            except ValueError:
                refused += 1
    assert refused > 20


@pytest.mark.parametrize(
    "content", [b"", b"PAR1", b"\0" * 100, b"PAR1\xff\xff\xff\x7fPAR1", b"PAR1" + b"\x1c" * 9 + b"PAR1"]
)
def test_what_is_no_parquet_file(content):
    with tempfile.TemporaryFile() as file:
        file.write(content)
        file.flush()
        with pytest.raises(ValueError, match=r"Parquet|footer"):
            column_chunks(file)


def test_footers_that_are_nested_or_long(monkeypatch):
    nested = b"\x1c" * 100_000  # a struct in a struct in a struct
    with tempfile.TemporaryFile() as file:
        file.write(b"PAR1" + nested + len(nested).to_bytes(4, "little") + b"PAR1")
        file.flush()
        with pytest.raises(ValueError, match=facts("footer")):
            column_chunks(file)
    monkeypatch.setattr(parquet, "MAX_CHUNKS", 10)
    with written(row_group_size=7) as file, pytest.raises(ValueError, match=facts("10")):
        column_chunks(file)
    monkeypatch.setattr(parquet, "MAX_FOOTER", 100)
    with written() as file, pytest.raises(ValueError, match=facts("100")):
        column_chunks(file)


def test_only_files_have_sizes():
    with pytest.raises(OSError, match="fileno"):
        column_chunks(io.BytesIO(b"PAR1"))
