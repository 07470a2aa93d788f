"""One annotation file in PASCAL VOC's XML, which ImageNet uses too.

Parsed by defusedxml, without DTDs or entities. Coordinates stay text until the box is made, so that a file with a
broken box still tells its class names. torchvision's `parse_voc_xml` checks nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from defusedxml.common import DefusedXmlException
from defusedxml.ElementTree import ParseError, fromstring

from calibrant.data.readers._boxes import Size
from calibrant.data.readers._checks import number
from calibrant.data.sources import UnreadableError, decoded, read_bytes

#: Largest annotation file that is read, in bytes; a thousand objects take a third of a megabyte.
MAX_XML = 2**22
_CORNERS = ("xmin", "ymin", "xmax", "ymax")


@dataclass(frozen=True)
class Annotation:
    """What one file says.

    Attributes:
        filename: Of the image; empty if the file does not say.
        size: Width and height, each 0 if the file does not say.
        objects: Class name and x1, y1, x2, y2 as text.
    """

    filename: str
    size: Size
    objects: tuple[tuple[str, tuple[str, ...]], ...]


def parse_annotation(path: Path) -> Annotation:
    """Read one file; what breaks is an `UnreadableError` naming it, or an OSError."""
    root = _parsed(path)
    if root.tag != "annotation":
        raise UnreadableError(f"{path}: the root of the file is <{root.tag[:50]}>, not <annotation>.")
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
        _text(root, "filename"),
        (0, 0) if size is None else (_side(size, "width"), _side(size, "height")),
        tuple(objects),
    )


def _parsed(path: Path) -> Any:
    data = read_bytes(path, MAX_XML)
    try:
        try:
            return fromstring(data, forbid_dtd=True)
        except DefusedXmlException:
            raise
        except (ParseError, ValueError, LookupError):
            # Bytes that are not in the encoding the file declares, or one that the parser does not know.
            return fromstring(decoded(data)[0], forbid_dtd=True)
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
