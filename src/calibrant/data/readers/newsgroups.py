"""20 Newsgroups: sorted by date, ``20news-bydate-{train,test}/<group>/<document>``, or the original collection.

The original collection is one folder of 19,997 messages, ``20_newsgroups/<group>/<document>``: its only split is
``all``, from which a recipe cuts the test set with ``test_share``.

Every file is checked when the data set is opened, and read again on demand. Files that are not UTF-8 (read as latin-1),
have carriage returns or are empty are kept and reported.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from calibrant.data.dataset import Dataset
from calibrant.data.files import decode, folders_in, read_bytes
from calibrant.data.readers._folder import LATIN_1, DataFolder, reader, reason
from calibrant.data.sources import TextFiles

Part = Literal["headers", "footers", "quotes"]

_FOLDERS = {"train": "20news-bydate-train", "test": "20news-bydate-test", "all": "20_newsgroups"}
_QUOTE = re.compile(r"writes in|writes:|wrote:|says:|said:|^In article|^Quoted from|^\||^>")


def strip_parts(text: str, remove: Collection[Part]) -> str:
    r"""A message without some of its parts, by the rules of scikit-learn's ``fetch_20newsgroups``.

    Args:
        text: The message.
        remove: ``"headers"``: all before the first empty line; ``"footers"``: all after the last line that is empty or
            made of dashes; ``"quotes"``: lines that quote, or say that they do.

    Example:
        >>> strip_parts("From: a\n\nHe wrote:\n> no\nYes.\n--\nme", ("headers", "footers", "quotes"))
        'Yes.'
    """
    if "headers" in remove:
        text = text.partition("\n\n")[2]
    if "footers" in remove:
        lines = text.strip().split("\n")
        end = next((i for i in range(len(lines) - 1, 0, -1) if not lines[i].strip().strip("-")), 0)
        text = "\n".join(lines[:end]) if end else text
    if "quotes" in remove:
        text = "\n".join(line for line in text.split("\n") if not _QUOTE.search(line))
    return text


@dataclass(frozen=True, eq=False)
class _Messages(TextFiles):
    """Text files without some parts of each message."""

    remove: tuple[Part, ...] = ()

    def __getitem__(self, index: int) -> str:
        return strip_parts(super().__getitem__(index), self.remove)


def _splits(root: Path) -> tuple[str, ...]:
    return tuple(split for split, folder in _FOLDERS.items() if (root / folder).is_dir())


@reader(
    "newsgroups",
    summary="20news-bydate-{train,test}/<group>/<document> or 20_newsgroups/<group>/<document>, raw messages",
    splits=_splits,
)
def newsgroups(folder: DataFolder, *, remove: Sequence[Part] | set[Part] | frozenset[Part] = ()) -> Dataset:
    """Read 20 Newsgroups.

    Args:
        folder: The folder with 20news-bydate-train and 20news-bydate-test, or 20_newsgroups.
        remove: Which of ``"headers"``, ``"footers"`` and ``"quotes"`` to take out of each message (see `strip_parts`).
    """
    root, home = folder.root, _FOLDERS[folder.split]
    # Over all splits, so that a group that is missing from one of them does not shift the labels.
    classes = sorted({name for split in _splits(root) for name in folders_in(root / _FOLDERS[split])})
    labels = {
        name: label
        for label, group in enumerate(classes)
        if (root / home / group).is_dir()
        for file in folder.files(f"{home}/{group}", suffixes=None)
        if _is_readable(folder, name := f"{home}/{group}/{file}", remove)
    }
    messages = _Messages(root, tuple(labels), tuple(remove))
    return folder.dataset("newsgroups", classes, labels, list(labels.values()), messages)


def _is_readable(folder: DataFolder, name: str, remove: Collection[Part]) -> bool:
    path, findings = folder.root / name, folder.findings
    try:
        data = read_bytes(path)
    except (OSError, ValueError) as error:
        findings.skip(name, "the file cannot be read", reason(error, path))
        return False
    text, is_utf8 = decode(data)
    if not is_utf8:
        findings.odd(name, LATIN_1)
    if b"\r" in data:
        findings.odd(name, "carriage returns")
    if not text.strip():
        findings.odd(name, "empty file")
    elif remove and not strip_parts(text, remove).strip():
        findings.odd(name, "empty once parts are removed")
    return True
