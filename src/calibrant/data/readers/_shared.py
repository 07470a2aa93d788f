"""Steps that several readers take: listing files, keeping sound images, naming; trouble goes to the findings."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from calibrant.data.dataset import Findings
from calibrant.data.files import SUFFIXES, files_below, inside, read_lines
from calibrant.data.readers._checks import check_image, reason, unique_names
from calibrant.data.readers._phrases import HIDDEN, MISSING, NAME_OUT, ROTATED, UNREADABLE

Splits = Callable[[Path], tuple[str, ...]]


def never_raising(splits: Splits) -> Splits:
    """The splits of a folder; none where it cannot be looked into: layouts are tried on whatever there is."""

    @functools.wraps(splits)
    def tried(root: Path) -> tuple[str, ...]:
        try:
            return splits(Path(root))
        except (OSError, ValueError):
            return ()

    return tried


def set_name(root: Path) -> str:
    """What to call a data set that has no name but its folder's, which ``.`` does not say."""
    return os.path.basename(os.path.abspath(root)) or "data"


def stem(name: str) -> str:
    """A name without its suffix; folders stay.

    Example:
        >>> stem("sub/a.b.jpg")
        'sub/a.b'
    """
    return os.path.splitext(name)[0]


def joined(folder: str, name: str) -> str:
    """A path inside the data folder, which may be the folder itself."""
    return f"{folder}/{name}" if folder else name


def is_hidden(name: str) -> bool:
    """Whether a file, or a folder that it is in, is hidden: macOS writes "._x.jpg" beside x.jpg, and it is no image."""
    return any(part.startswith(".") for part in name.split("/"))


def listed(
    root: Path,
    folder: str,
    findings: Findings,
    suffixes: frozenset[str] | None = SUFFIXES,
    trouble: Callable[[str, str], object] | None = None,
) -> Iterator[str]:
    """Names of the files below a folder of the data folder, relative to it; hidden files are left out.

    Links that lead out of the data folder or nowhere are skipped, or go to ``trouble`` if that is given.
    """
    for name in files_below(root / folder, suffixes, root, trouble or findings.skip):
        if is_hidden(name):
            findings.leave_out(joined(folder, name), HIDDEN)
        else:
            yield name


def lines_of(root: Path, name: str) -> list[str]:
    """The lines of a text file of the data folder; a link that leads out is an error."""
    return read_lines(inside(root, name))


def check_any(root: Path, split: str, number: int, findings: Findings, what: str = "image") -> None:
    """An error that says why, if a split holds nothing that can be used."""
    if not number:
        reasons = findings.reasons()
        raise ValueError(
            f"{root}: the split {split!r} holds no {what} that can be used{f': {reasons}' if reasons else ''}."
        )


def is_sound(path: Path, name: str, findings: Findings) -> bool:
    """Whether to keep an image: with ``on_error="skip"`` it is looked at now, else when it is decoded."""
    if findings.on_error == "raise":
        return True
    try:
        checked = check_image(path)
    except (ValueError, OSError) as error:
        findings.skip(name, UNREADABLE, reason(error, path))
        return False
    if checked.rotated:
        findings.odd(name, ROTATED)
    return True


def is_there(root: Path, name: str, where: str, findings: Findings) -> bool:
    """Whether to keep an image that a line of a list or a row of a table, ``where``, names."""
    try:
        path = inside(root, name)
    except ValueError:
        findings.skip(where, NAME_OUT, repr(name[:200]))
        return False
    if not os.path.isfile(path):  # Path.is_file raises if the name is too long
        findings.skip(name, MISSING, where)
        return False
    return is_sound(path, name, findings)


def images_by_class(
    root: Path, folders: Iterable[tuple[str, int]], findings: Findings
) -> tuple[tuple[str, ...], list[int]]:
    """Names (inside ``root``) and labels of the images in folders that hold one class each.

    Args:
        root: The data folder.
        folders: Their names inside ``root``, and their labels.
        findings: Takes folders without images (odd), hidden files (left out), links and broken images.
    """
    names: list[str] = []
    labels: list[int] = []
    for folder, label in folders:
        found = 0
        for file in listed(root, folder, findings):
            name = f"{folder}/{file}"
            found += 1
            if is_sound(root / name, name, findings):
                names.append(name)
                labels.append(label)
        if not found:
            findings.odd(folder, "class folder without images")
    return tuple(names), labels


def class_words(root: Path, name: str, wnids: list[str]) -> tuple[str, ...]:
    """The first word for each wnid, from lines "wnid words, words" (the wnid itself where there is none)."""
    words: dict[str, str] = {}
    for line in lines_of(root, name) if (root / name).is_file() else ():
        wnid, *rest = line.split(maxsplit=1)[:2] or [""]
        words[wnid] = rest[0].split(",")[0].strip() if rest else ""
    return unique_names([words.get(wnid) or wnid for wnid in wnids], wnids)
