"""Text for spreadsheets: what they would run as a formula is quoted, all else is as it was."""

import pyarrow as pa
import pytest

from calibrant.base.spreadsheet import quote_formulas


@pytest.mark.parametrize("text", ["=1", "+1", "-1", "@a", "\tx", "\rx", "\n=1"])
def test_formulas(text):
    for make in (pa.table, pa.record_batch):
        assert quote_formulas(make({"a": [text]})).to_pydict() == {"a": ["'" + text]}


def test_all_else():
    table = pa.table({"a": ["a=b", "", "'=1", "1", "ä", "x\n=1"], "n": [-1, 2, 3, 4, 5, 6], "f": [-1.5] * 6})
    assert quote_formulas(table).equals(table)
