"""Text that no spreadsheet takes for a formula, for CSV files that are opened in one."""

from __future__ import annotations

from typing import Any


def quote_formulas(table: Any) -> Any:
    """A table or record batch of Arrow in which text that begins with = + - @, a tab or a line end has ' before it.

    Example:
        >>> import pyarrow as pa
        >>> quote_formulas(pa.table({"id": ["=1+1", "a=b"], "label": [1, -1]})).to_pylist()
        [{'id': "'=1+1", 'label': 1}, {'id': 'a=b', 'label': -1}]
    """
    import pyarrow as pa  # here, because most commands write no table
    import pyarrow.compute as pc

    columns = {
        name: pc.replace_substring_regex(column, r"\A([=+\-@\t\r\n])", r"'\1")
        if pa.types.is_string(column.type)
        else column
        for name, column in zip(table.schema.names, table.columns, strict=True)
    }
    return type(table).from_arrays(list(columns.values()), names=list(columns))
