"""What readers of folders share: splits that never raise, images in class folders."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from calibrant.data.findings import Findings
from calibrant.data.readers._checks import check_image
from calibrant.data.sources import files_below

Splits = Callable[[Path], tuple[str, ...]]


def never_raising(splits: Splits) -> Splits:
    """The splits of a folder; none where it cannot be looked into: layouts are tried on whatever there is."""

    def tried(root: Path) -> tuple[str, ...]:
        try:
            return splits(Path(root))
        except (OSError, ValueError):
            return ()

    return tried


def is_sound(path: Path, name: str, findings: Findings) -> bool:
    """Whether to keep an image: with ``on_error="skip"`` it is looked at now, else when it is decoded."""
    if findings.on_error == "raise":
        return True
    try:
        check_image(path)
    except (ValueError, OSError) as error:
        findings.skip(name, "the image cannot be read", str(error))
        return False
    return True


def images_by_class(
    root: Path, folders: Iterable[tuple[str, int]], findings: Findings
) -> tuple[tuple[str, ...], list[int]]:
    """Names (inside ``root``) and labels of the images in folders that hold one class each.

    Args:
        root: The data folder.
        folders: Their names inside ``root``, and their labels.
        findings: Takes folders without images (odd), hidden files (left out) and broken images.
    """
    names: list[str] = []
    labels: list[int] = []
    for folder, label in folders:
        found = 0
        for file in files_below(root / folder):
            name = f"{folder}/{file}"
            found += 1
            # macOS writes "._x.jpg" beside x.jpg, and it is no image.
            if file.rpartition("/")[2].startswith("."):
                findings.leave_out(name, "hidden file")
            elif is_sound(root / name, name, findings):
                names.append(name)
                labels.append(label)
        if not found:
            findings.odd(folder, "class folder without images")
    return tuple(names), labels
