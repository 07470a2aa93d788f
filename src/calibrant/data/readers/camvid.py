"""CamVid, as SegNet's tutorial lays it out or as it was published.

    {train,val,test}  {train,val,test}annot  {train,val,test}.txt       11 classes, 11 is void
    701_StillsRaw_full/*.png  LabeledApproved_full/*_L.png  label_colors.txt      32 colours, one split, "all"

A line of ``train.txt`` names an image and its mask, under any prefix (``/SegNet/CamVid/train/x.png``): the last two
parts of each name count. Without a list, masks go with the images of the same stem. The 32 classes of the original are
grouped into SegNet's 11; what is in none of them is void.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import numpy as np

from calibrant.data.dataset import Dataset, Findings, OnError
from calibrant.data.files import UnreadableError
from calibrant.data.layouts import layout
from calibrant.data.readers._checks import check_split, whole
from calibrant.data.readers._masks import Coloured, Mapped, segmented, table
from calibrant.data.readers._shared import lines_of, listed, never_raising, stem

#: The classes, and those of the original that each takes in.
GROUPS = {
    "Sky": ("Sky",),
    "Building": ("Building", "Archway", "Bridge", "Tunnel", "Wall"),
    "Pole": ("Column_Pole", "TrafficCone"),
    "Road": ("Road", "LaneMkgsDriv", "LaneMkgsNonDriv"),
    "Pavement": ("Sidewalk", "ParkingBlock", "RoadShoulder"),
    "Tree": ("Tree", "VegetationMisc"),
    "SignSymbol": ("SignSymbol", "Misc_Text", "TrafficLight"),
    "Fence": ("Fence",),
    "Car": ("Car", "OtherMoving", "SUVPickupTruck", "Train", "Truck_Bus"),
    "Pedestrian": ("Pedestrian", "Animal", "CartLuggagePram", "Child"),
    "Bicyclist": ("Bicyclist", "MotorcycleScooter"),
}
CLASSES = tuple(GROUPS)
VOID = 11

_MEANING = table({value: value for value in range(VOID + 1)})


_IMAGES, _MASKS, _COLOURS = "701_StillsRaw_full", "LabeledApproved_full", "label_colors.txt"


def _splits(root: Path) -> tuple[str, ...]:
    if (root / _IMAGES).is_dir() and (root / _MASKS).is_dir() and (root / _COLOURS).is_file():
        return ("all",)
    return tuple(s for s in ("train", "val", "test") if (root / s).is_dir() and (root / f"{s}annot").is_dir())


@layout(
    "camvid",
    summary="{train,val,test} and {train,val,test}annot; or 701_StillsRaw_full, LabeledApproved_full, label_colors.txt",
    splits=never_raising(_splits),
)
def camvid(root: str | Path, split: str, *, on_error: OnError = "raise") -> Dataset:
    """Read CamVid with 11 classes; 11 (unlabelled) is ignored, any other value or colour in a mask is an error."""
    root = Path(root)
    check_split(root, split, _splits(root))
    findings = Findings(on_error)
    meant = Mapped(root, (), meaning=_MEANING)
    if split == "all":
        found, meant = _matched(root, _IMAGES, _MASKS, "_L", findings), _coloured(root)
    elif (root / f"{split}.txt").is_file():
        found = _listed(root, split, findings)
    else:
        found = _matched(root, split, f"{split}annot", "", findings)
    return segmented("camvid", split, CLASSES, found, meant, findings, ignore_index=VOID)


def _coloured(root: Path) -> Coloured:
    """What each colour means, by lines "R G B name"."""
    labels = {name: label for label, names in enumerate(GROUPS.values()) for name in names} | {"Void": VOID}
    meaning: dict[int, int] = {}
    for number, line in enumerate(lines_of(root, _COLOURS), start=1):
        *colour, name = line.split() or [""]
        if not name:
            continue
        try:
            red, green, blue = bytes(map(whole, colour))  # each from 0 to 255
            meaning[65536 * red + 256 * green + blue] = labels[name]
        except (ValueError, KeyError) as error:
            raise UnreadableError(
                f"{root / _COLOURS}: line {number} is not a colour and one of CamVid's 32 classes."
            ) from error
    if not meaning:
        raise UnreadableError(f"{root / _COLOURS}: the file names no colour.")
    colours = np.array(sorted(meaning), dtype=np.int64)
    return Coloured(root, (), meaning=np.array([meaning[c] for c in colours.tolist()], dtype=np.int16), colours=colours)


def _listed(root: Path, split: str, findings: Findings) -> Iterator[tuple[str, str]]:
    for number, line in enumerate(lines_of(root, f"{split}.txt"), start=1):
        names = line.split()
        if len(names) == 2:
            image, mask = ("/".join(PurePosixPath(name.replace("\\", "/")).parts[-2:]) for name in names)
            yield image, mask
        elif names:
            findings.skip(f"{split}.txt line {number}", "a line should name an image and a mask", f"{len(names)} names")


def _matched(root: Path, images: str, masks: str, ending: str, findings: Findings) -> Iterator[tuple[str, str]]:
    """Each image with the mask of its stem and an ending."""
    named = {stem(name): name for name in listed(root, masks, findings)}
    for name in listed(root, images, findings):
        key = f"{stem(name)}{ending}"
        yield f"{images}/{name}", f"{masks}/{named.get(key, key + '.png')}"
