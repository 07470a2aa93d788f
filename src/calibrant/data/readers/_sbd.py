"""The Semantic Boundaries Dataset beside PASCAL VOC 2012: masks of 11,355 more of its images, in MATLAB files.

VOC's augmented training set has 10,582 images: those of SBD's two lists and of VOC's ``train``, without VOC's ``val``.
Where both have a mask VOC's own is taken. Neither the masks nor a list come with Calibrant; SBD is looked for inside
the VOC folder, as ``SBD`` or as its archive unpacks (``benchmark_RELEASE/dataset``):

    cls/<stem>.mat   train.txt   val.txt
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from calibrant.data.boxes import Integers
from calibrant.data.files import UnreadableError
from calibrant.data.readers._folder import DataFolder
from calibrant.data.readers.segmentation import MaskFiles

_FOLDERS = ("SBD", "benchmark_RELEASE/dataset")
#: Bytes of the largest MATLAB file that is opened: those of SBD have some ten thousand.
_LARGEST = 2**24


def sbd_folder(root: Path) -> str | None:
    """SBD's folder inside a VOC folder, if it is there with masks and lists."""
    for name in _FOLDERS:
        if (root / name / "cls").is_dir() and all((root / name / f"{s}.txt").is_file() for s in ("train", "val")):
            return name
    return None


def augmented_stems(folder: DataFolder, sbd: str, lists: str) -> list[str]:
    """VOC's training images, then those of SBD that are in neither of VOC's two lists."""
    own, held_out = (_stems(folder, f"{lists}/{split}.txt") for split in ("train", "val"))
    more = dict.fromkeys(_stems(folder, f"{sbd}/train.txt") + _stems(folder, f"{sbd}/val.txt"))
    taken = {*own, *held_out}
    return [*own, *(stem for stem in more if stem not in taken)]


def _stems(folder: DataFolder, source: str) -> list[str]:
    return [line.split()[0] for line in folder.lines(source) if line.strip()]


def mask_of(root: Path, stem: str, sbd: str | None) -> str:
    """The file of a mask: the one of the augmented folder, VOC's own, or SBD's."""
    for name in (f"SegmentationClassAug/{stem}.png", f"SegmentationClass/{stem}.png"):
        if sbd is None or os.path.isfile(root / name):
            return name
    return f"{sbd}/cls/{stem}.mat"


@dataclass(frozen=True, eq=False)
class SbdMaskFiles(MaskFiles):
    """Masks in image files and in SBD's MATLAB files."""

    def take(self, indices: Integers) -> SbdMaskFiles:
        """Some of the samples, in the order of ``indices``."""
        return dataclasses.replace(self, names=tuple(self.names[i] for i in indices))

    def open(self, index: int, draft: Callable[[Image.Image], object] | None = None) -> Image.Image:
        """The mask."""
        path = self.path(index)
        if path.suffix != ".mat":
            return super().open(index, draft)
        stored = Image.fromarray(_segmentation(path))
        return Image.fromarray(self.labels(stored, path))


def _segmentation(path: Path) -> NDArray[np.uint8]:
    """``GTcls.Segmentation`` of a MATLAB file."""
    from scipy.io import loadmat  # here, because few need it

    if path.stat().st_size > _LARGEST:
        raise UnreadableError(f"{path}: a mask of SBD has at most {_LARGEST:,} bytes, got {path.stat().st_size:,}")
    try:
        labels = loadmat(path, variable_names=["GTcls"])["GTcls"]["Segmentation"][0, 0]
    except OSError:
        raise
    except Exception as error:  # whatever a damaged file makes SciPy raise
        raise UnreadableError(f"{path}: not a mask of SBD (GTcls.Segmentation in a MATLAB file)") from error
    if not isinstance(labels, np.ndarray) or labels.dtype != np.uint8 or labels.ndim != 2:
        raise UnreadableError(f"{path}: GTcls.Segmentation must be an array of 8-bit labels [H, W]")
    return np.ascontiguousarray(labels)
