"""One annotation file in PASCAL VOC's XML, which ImageNet uses too.

Parsed by defusedxml, without DTDs or entities. Coordinates stay text until the box is made, so that a file with a
broken box still tells its class names. torchvision's `parse_voc_xml` checks nothing.

A file is decoded by its byte order mark, else as it declares, by Python's codecs (the parser itself knows four); one
that declares nothing, or UTF-8, and is not UTF-8, is read as latin-1 and says so.
"""

from __future__ import annotations

import codecs
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from defusedxml.common import DefusedXmlException
from defusedxml.ElementTree import ParseError, fromstring

from calibrant.data.files import UnreadableError, decoded, printable, read_bytes
from calibrant.data.readers._boxes import Size
from calibrant.data.readers._checks import number

#: Largest annotation file that is read, in bytes; a thousand objects take a third of a megabyte.
MAX_XML = 2**22
_CORNERS = ("xmin", "ymin", "xmax", "ymax")

_MARKS = {
    codecs.BOM_UTF8: "utf-8-sig",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
    b"<\0": "utf-16-le",
    b"\0<": "utf-16-be",
}
_DECLARED = re.compile(rb"""\s*<\?xml[^>]*?\sencoding\s*=\s*["']([\w.:-]{1,40})["']""", re.ASCII)
#: Python calls these text encodings, and no annotation is written in them.
_NO_ENCODINGS = {"idna", "punycode", "raw-unicode-escape", "undefined", "unicode-escape"}


@dataclass(frozen=True)
class Annotation:
    """What one file says.

    Attributes:
        folder: That of the data set, as the file says; empty if it does not.
        filename: Of the image; empty if the file does not say.
        size: Width and height, each 0 if the file does not say.
        objects: Class name and x1, y1, x2, y2 as text.
        guessed: Whether the file is not in the encoding it should be, and was read as latin-1.
    """

    folder: str
    filename: str
    size: Size
    objects: tuple[tuple[str, tuple[str, ...]], ...]
    guessed: bool = False


def parse_annotation(path: Path) -> Annotation:
    """Read one file; what breaks is an `UnreadableError` naming it, or an OSError."""
    text, guessed = _decoded(path)
    root = _parsed(text, path)
    if root.tag != "annotation":
        raise UnreadableError(f"{path}: the root of the file is <{printable(root.tag, 50)}>, not <annotation>.")
    objects = []
    for item in root.iterfind("object"):
        name, corners = _text(item, "name"), item.find("bndbox")
        if not name:
            raise UnreadableError(f"{path}: an <object> has no <name>.")
        if corners is None:
            raise UnreadableError(f"{path}: the <object> {name[:50]!r} has no <bndbox>.")
        objects.append((name, tuple(_text(corners, tag) for tag in _CORNERS)))
    size = root.find("size")
    return Annotation(
        _text(root, "folder"),
        _text(root, "filename"),
        (0, 0) if size is None else (_side(size, "width"), _side(size, "height")),
        tuple(objects),
        guessed,
    )


def _decoded(path: Path) -> tuple[str, bool]:
    """The file's text, and whether its encoding was guessed."""
    data = read_bytes(path, MAX_XML)
    marked = next((name for mark, name in _MARKS.items() if data.startswith(mark)), None)
    declared = _DECLARED.match(data)
    encoding = marked or (declared[1].decode("ascii") if declared else "utf-8")
    try:
        known = codecs.lookup(encoding).name
        # Windows writes "utf-16" into files that are not: a declaration that can be read as ASCII is in neither.
        if known == "utf-8" or (not marked and known.startswith(("utf-16", "utf-32"))):
            text, is_utf8 = decoded(data)
            return text, not is_utf8
        if known in _NO_ENCODINGS:
            raise LookupError
        return data.decode(known), False
    except LookupError as error:
        raise UnreadableError(f"{path}: the file is not XML in an encoding that is known, but {encoding!r}.") from error
    except ValueError as error:
        raise UnreadableError(f"{path}: the file is not XML in {encoding}, as its beginning says.") from error


def _parsed(text: str, path: Path) -> Any:
    try:
        return fromstring(text, forbid_dtd=True)
    except DefusedXmlException as error:
        raise UnreadableError(f"{path}: the file declares a document type or entities, which are not read.") from error
    except (ParseError, ValueError, LookupError, RecursionError) as error:
        raise UnreadableError(f"{path}: the file is not XML ({' '.join(str(error).split())[:200]}).") from error


def _text(element: Any, tag: str) -> str:
    return " ".join((element.findtext(tag) or "").split())


def _side(size: Any, tag: str) -> int:
    try:
        return max(0, int(number(_text(size, tag))))
    except ValueError:
        return 0
