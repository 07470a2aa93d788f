"""Labels that came later: a table of ids and labels, as CSV or Parquet."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from calibrant._files import open_regular
from calibrant._validation import listing, short

IDS, LABELS = ("id", "ids"), ("label", "labels")


def read_labels(path: str | Path, classes: int, class_names: Sequence[str] | None) -> dict[str, int]:
    """The class of every id.

    Args:
        path: .csv or .parquet with a column id and a column label: positions of classes, or their names.
        classes: how many there are.
        class_names: what they are called.
    """
    import pyarrow as pa

    try:
        table = _read(Path(path))
    except pa.ArrowException as error:
        raise ValueError(f"{path}: not a table of labels ({str(error).splitlines()[0]})") from None
    ids, labels = (_column(path, table, names) for names in (IDS, LABELS))
    numbers = {name: number for number, name in enumerate(class_names or ())}
    numbers |= {str(number): number for number in range(classes) if str(number) not in numbers and class_names is None}
    classes_by_id: dict[str, int] = {}
    for name, label in zip(ids, labels, strict=True):
        if name is None or label is None:
            continue  # a label that is still missing
        number = numbers.get(str(label), label if isinstance(label, int) and 0 <= label < classes else None)
        if number is None:
            raise ValueError(f"{path}: the label {short(label)} is none of {classes} classes")
        if classes_by_id.setdefault(str(name), number) != number:
            raise ValueError(f"{path}: the id {short(name)} has two labels")
    if not classes_by_id:
        raise ValueError(f"{path}: there are no labels")
    return classes_by_id


def _read(path: Path) -> Any:
    import pyarrow.csv
    import pyarrow.parquet

    suffix = path.suffix.lower()
    if suffix not in (".csv", ".parquet"):
        raise ValueError(f"{path}: labels are read from .csv or .parquet, got {suffix!r}")
    with open_regular(path) as file:
        if suffix == ".csv":
            return pyarrow.csv.read_csv(file, convert_options=pyarrow.csv.ConvertOptions(strings_can_be_null=True))
        return pyarrow.parquet.read_table(file)


def _column(path: str | Path, table: Any, names: tuple[str, ...]) -> list[Any]:
    matches = [name for name in table.column_names if name in names]
    if len(matches) != 1:
        raise ValueError(f"{path}: expected a column {names[0]!r}, got {listing(table.column_names, 5)}")
    values: list[Any] = table.column(matches[0]).to_pylist()
    return values
