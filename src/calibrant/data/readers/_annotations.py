"""Untrusted annotation files: PASCAL VOC's XML, JSON, CSV, and the numbers and names in them."""

from __future__ import annotations

import codecs
import csv
import json
import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from defusedxml.common import DefusedXmlException
from defusedxml.ElementTree import ParseError, fromstring

from calibrant._validation import printable
from calibrant.data.files import UnreadableError, decode, read_bytes

Size = tuple[int, int]

#: Largest annotation files, in bytes: COCO's train2017 has 448 MB; a thousand objects in XML take a third of a
#: megabyte.
MAX_JSON, MAX_XML = 2**29, 2**22

#: Largest coordinate.
_LARGEST = 1e9
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)

_CORNERS = ("xmin", "ymin", "xmax", "ymax")
_MARKS = {
    codecs.BOM_UTF8: "utf-8-sig",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
    b"<\0": "utf-16-le",
    b"\0<": "utf-16-be",
}
_DECLARED = re.compile(rb"""\s*<\?xml[^>]*?\sencoding\s*=\s*["']([\w.:-]{1,40})["']""", re.ASCII)
#: Text encodings of Python that no annotation is written in.
_NO_ENCODINGS = {"idna", "punycode", "raw-unicode-escape", "undefined", "unicode-escape"}


def parse_number(value: object) -> float:
    """A coordinate from JSON or text; a ValueError if it is not a finite number of a plausible size."""
    result = math.nan
    if isinstance(value, str):
        text = value.strip()
        if len(text) < 100 and _NUMBER.fullmatch(text):  # float() would also take 1_000, nan and inf
            result = float(text)
    elif isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) <= _LARGEST:
        result = float(value)
    if not abs(result) <= _LARGEST:
        raise ValueError(f"{short_repr(value)} is not a number that a coordinate can be")
    return result


def parse_count(text: str) -> int:
    """A whole number from 0 on from text; a ValueError if it is anything else, or too long."""
    digits = text.strip()
    if len(digits) > 18 or not (digits.isascii() and digits.isdecimal()):
        raise ValueError(f"{short_repr(text)} is not a whole number from 0 on")
    return int(digits)


def parse_side(value: object) -> int:
    """The width or height of an image in an annotation; 0 if it is missing or cannot be right."""
    try:
        return max(0, int(parse_number(value)))
    except ValueError:
        return 0


def short_repr(value: object) -> str:
    """A value from a file, shortened for a message."""
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # integers of more than 4300 digits, lists in lists in lists
        text = f"a {type(value).__name__}"
    return text if len(text) <= 60 else text[:57] + "..."


def unique_names(names: Sequence[str], keys: Sequence[object]) -> tuple[str, ...]:
    """Names with their keys added where two classes have the same name.

    Example:
        >>> unique_names(["crane", "bee", "crane"], ["n02012849", "n02206856", "n03126707"])
        ('crane (n02012849)', 'bee', 'crane (n03126707)')
    """
    times = Counter(names)
    return tuple(name if times[name] == 1 else f"{name} ({key})" for name, key in zip(names, keys, strict=True))


def read_json(path: Path, drop: str | None = None) -> Any:
    """Read a JSON file without the key ``drop``, which is discarded while reading to save memory.

    A repeated key in an object is an error: only one of its values would be used.
    """

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        row = dict(pairs)
        if len(row) != len(pairs):
            repeated, _ = Counter(key for key, _ in pairs).most_common(1)[0]
            raise UnreadableError(f"{path}: the key {short_repr(repeated)} occurs twice in one object")
        row.pop(drop or "", None)
        return row

    data = read_bytes(path, MAX_JSON)
    try:
        return json.loads(data, object_pairs_hook=unique)
    except UnreadableError:
        raise
    except RecursionError as error:
        raise UnreadableError(f"{path}: the file is not JSON of a data set: it is nested too deeply") from error
    except ValueError as error:
        cause = "a number has too many digits" if "digits" in str(error) else " ".join(str(error).split())[:200]
        raise UnreadableError(f"{path}: the file is not JSON ({cause})") from error


def csv_rows(path: Path, lines: Iterator[str]) -> Iterator[list[str]]:
    """The fields of each line of a CSV file; invalid CSV is an `UnreadableError`."""
    try:
        yield from csv.reader(lines)
    except csv.Error as error:
        raise UnreadableError(f"{path}: the file is not CSV ({error})") from error


class Annotation(NamedTuple):
    """The contents of a file of VOC's XML, which ImageNet uses too; a text that is missing is empty.

    Objects are their class name and x1, y1, x2, y2 as text, so that a file with a broken box still has its class names.
    """

    folder: str
    filename: str
    size: Size  # each side 0 if missing
    objects: tuple[tuple[str, tuple[str, ...]], ...]
    guessed: bool  # the file does not have the encoding that it should have, and was read as latin-1


def parse_annotation(path: Path) -> Annotation:
    """Read one XML file, without DTDs or entities; failures are an `UnreadableError` that names it, or an OSError."""
    text, guessed = _decode_xml(path)
    try:
        root = fromstring(text, forbid_dtd=True)
    except DefusedXmlException as error:
        raise UnreadableError(f"{path}: the file declares a document type or entities, which are not read") from error
    except (ParseError, ValueError, LookupError, RecursionError) as error:
        raise UnreadableError(f"{path}: the file is not XML ({' '.join(str(error).split())[:200]})") from error
    if root.tag != "annotation":
        raise UnreadableError(f"{path}: the root of the file is <{printable(root.tag, 50)}>, not <annotation>")
    objects = []
    for item in root.iterfind("object"):
        name, corners = _text(item, "name"), item.find("bndbox")
        if not name:
            raise UnreadableError(f"{path}: an <object> has no <name>")
        if corners is None:
            raise UnreadableError(f"{path}: the <object> {name[:50]!r} has no <bndbox>")
        objects.append((name, tuple(_text(corners, tag) for tag in _CORNERS)))
    width, height = (parse_side(_text(root, f"size/{tag}")) for tag in ("width", "height"))
    return Annotation(_text(root, "folder"), _text(root, "filename"), (width, height), tuple(objects), guessed)


def _decode_xml(path: Path) -> tuple[str, bool]:
    """The file's text, and whether its encoding was guessed.

    The encoding is that of the byte order mark, or else the declared one, by Python's codecs (the parser knows only
    four). A file that declares nothing or UTF-8, and is not UTF-8, is read as latin-1.
    """
    data = read_bytes(path, MAX_XML)
    marked = next((name for mark, name in _MARKS.items() if data.startswith(mark)), None)
    declared = _DECLARED.match(data)
    encoding = marked or (declared[1].decode("ascii") if declared else "utf-8")
    try:
        codec = codecs.lookup(encoding).name
        # Windows declares "utf-16" in files that are not: a declaration that is readable as ASCII cannot be either.
        if codec == "utf-8" or (not marked and codec.startswith(("utf-16", "utf-32"))):
            text, is_utf8 = decode(data)
            return text, not is_utf8
        if codec in _NO_ENCODINGS:
            raise LookupError
        return data.decode(codec), False
    except LookupError as error:
        raise UnreadableError(f"{path}: the file is not XML in an encoding that is known, but {encoding!r}") from error
    except ValueError as error:
        raise UnreadableError(f"{path}: the file is not XML in {encoding}, as its beginning says") from error


def _text(element: Any, tag: str) -> str:
    return " ".join((element.findtext(tag) or "").split())
