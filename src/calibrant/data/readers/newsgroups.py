"""20 Newsgroups, sorted by date: ``20news-bydate-{train,test}/<group>/<document>``.

Every file is looked at when the data set is opened, and read again when it is asked for: files that are not UTF-8 (they
are read as latin-1), that hold carriage returns or nothing at all are kept and reported.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from calibrant.data.boxes import Integers
from calibrant.data.dataset import Dataset, Findings, OnError
from calibrant.data.files import decoded, folders_in, read_bytes
from calibrant.data.layouts import layout
from calibrant.data.readers._checks import check_split, reason
from calibrant.data.readers._phrases import LATIN_1
from calibrant.data.readers._shared import check_any, listed, never_raising
from calibrant.data.sources import TextFiles

Part = Literal["headers", "footers", "quotes"]

_FOLDERS = {split: f"20news-bydate-{split}" for split in ("train", "test")}
_QUOTE = re.compile(r"writes in|writes:|wrote:|says:|said:|^In article|^Quoted from|^\||^>")


def stripped(text: str, remove: Collection[Part]) -> str:
    r"""A message without some of its parts, by the rules of scikit-learn's ``fetch_20newsgroups``.

    Args:
        text: The message.
        remove: ``"headers"``: all before the first empty line; ``"footers"``: all after the last line that is empty or
            made of dashes; ``"quotes"``: lines that quote, or say that they do.

    Example:
        >>> stripped("From: a\n\nHe wrote:\n> no\nYes.\n--\nme", ("headers", "footers", "quotes"))
        'Yes.'
    """
    if "headers" in remove:
        text = text.partition("\n\n")[2]
    if "footers" in remove:
        lines = text.strip().split("\n")
        last = next((i for i in range(len(lines) - 1, 0, -1) if not lines[i].strip().strip("-")), 0)
        text = "\n".join(lines[:last]) if last else text
    if "quotes" in remove:
        text = "\n".join(line for line in text.split("\n") if not _QUOTE.search(line))
    return text


@dataclass(frozen=True, eq=False)
class _Messages(TextFiles):
    """Text files without some parts of each message."""

    remove: tuple[Part, ...] = ()

    def __getitem__(self, index: int) -> str:
        return stripped(super().__getitem__(index), self.remove)

    def take(self, indices: Integers) -> _Messages:
        """Some of the samples, in the order of ``indices``."""
        return dataclasses.replace(self, names=tuple(self.names[i] for i in indices))


def _splits(root: Path) -> tuple[str, ...]:
    return tuple(split for split, folder in _FOLDERS.items() if (root / folder).is_dir())


@layout(
    "newsgroups", summary="20news-bydate-{train,test}/<group>/<document>, raw messages", splits=never_raising(_splits)
)
def newsgroups(
    root: str | Path,
    split: str,
    *,
    on_error: OnError = "raise",
    remove: Sequence[Part] | set[Part] | frozenset[Part] = (),
) -> Dataset:
    """Read 20 Newsgroups.

    Args:
        root: The folder that holds 20news-bydate-train and 20news-bydate-test.
        split: ``"train"`` or ``"test"``.
        on_error: What to do with files that cannot be read.
        remove: Which of ``"headers"``, ``"footers"`` and ``"quotes"`` to take out of each message (see `stripped`).
    """
    root = Path(root)
    splits = _splits(root)
    check_split(root, split, splits)
    parts = ("headers", "footers", "quotes")
    if isinstance(remove, str) or not set(remove) <= set(parts):
        raise ValueError(f"remove takes some of {', '.join(parts)}, got {remove!r}.")
    findings = Findings(on_error)
    # Over both splits, so that a group that is missing from one of them does not shift the labels.
    classes = sorted({name for s in splits for name in folders_in(root / _FOLDERS[s])})
    files = _files(root, split, classes, findings)
    kept = [(name, label) for name, label in files if _readable(root, name, remove, findings)]
    check_any(root, split, len(kept), findings, "text")
    names = tuple(name for name, _ in kept)
    return Dataset(
        "newsgroups",
        split,
        tuple(classes),
        names,
        np.array([label for _, label in kept], dtype=np.int64),
        _Messages(root, names, tuple(remove)),
        report=findings.report(),
    )


def _files(root: Path, split: str, classes: list[str], findings: Findings) -> Iterator[tuple[str, int]]:
    for label, group in enumerate(classes):
        folder = f"{_FOLDERS[split]}/{group}"
        if (root / folder).is_dir():
            yield from ((f"{folder}/{name}", label) for name in listed(root, folder, findings, suffixes=None))


def _readable(root: Path, name: str, remove: Collection[Part], findings: Findings) -> bool:
    try:
        data = read_bytes(root / name)
    except (OSError, ValueError) as error:
        findings.skip(name, "the file cannot be read", reason(error, root / name))
        return False
    text, utf8 = decoded(data)
    if not utf8:
        findings.odd(name, LATIN_1)
    if b"\r" in data:
        findings.odd(name, "carriage returns")
    if not text.strip():
        findings.odd(name, "empty file")
    elif remove and not stripped(text, remove).strip():
        findings.odd(name, "empty once parts are removed")
    return True
