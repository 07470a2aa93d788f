"""Label masks in files, and the layouts of street scenes that have them: CamVid and Cityscapes.

CamVid, in the layout of SegNet's tutorial or as published:

    {train,val,test}  {train,val,test}annot  {train,val,test}.txt       11 classes, 11 is void
    701_StillsRaw_full/*.png  LabeledApproved_full/*_L.png  label_colors.txt      32 colours, one split, "all"

A line of ``train.txt`` names an image and its mask, under any prefix (``/SegNet/CamVid/train/x.png``): the last two
parts of each name count. Without a list, each image has the mask of the same stem. The 32 original
classes are grouped into SegNet's 11; all others are void.

Cityscapes: ``leftImg8bit/<split>/<city>/*_leftImg8bit.png`` and ``gtFine/<split>/<city>/*_gtFine_labelIds.png``. The
official ids are mapped to the 19 training classes when a mask is read; masks stored as ``labelTrainIds`` are used
unchanged. torchvision's reader gives the official ids unmapped. The official masks of the
test split are withheld: every pixel in them is ignored.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from calibrant.base.arrays import row_slices
from calibrant.data.dataset import NO_CLASS, Dataset
from calibrant.data.files import UnreadableError, open_image, parse_count, path_inside
from calibrant.data.readers._folder import MISSING, NAME_OUT, TWICE, DataFolder, reader, reason, stem
from calibrant.data.sources import ImageFiles

_PIXELS = 2**20  # of a mask, that are looked up together: a large image would take gigabytes


def label_table(labels: Mapping[int, int]) -> NDArray[np.int16]:
    """[256] int16 from stored value to label; -1 marks values that no mask may hold."""
    values = np.full(256, -1, dtype=np.int16)
    values[list(labels)] = list(labels.values())
    return values


@dataclass(frozen=True, eq=False)
class MaskFiles(ImageFiles):
    """Masks in files, as images of mode L that hold labels; the indices of a palette image are its values.

    ``meaning`` [256] is the label of each stored value, -1 where it is an error.
    """

    mode: str | None = None
    meaning: NDArray[np.int16] = field(default_factory=lambda: np.arange(256, dtype=np.int16))

    def open(self, index: int, draft: Callable[[Image.Image], object] | None = None) -> Image.Image:
        """The mask; there is no smaller decoding of labels."""
        path = self.path(index)
        with open_image(path, self.max_pixels) as image:
            image.load()
            return Image.fromarray(self.labels(image, path))

    def labels(self, image: Image.Image, path: Path) -> NDArray[np.uint8]:
        """The label of each pixel."""
        if image.mode not in ("L", "P"):
            raise UnreadableError(f"{path}: a mask of 8-bit labels (mode L or P) is expected, got {image.mode}")
        stored = np.asarray(image)
        labels = self.meaning[stored]
        if (is_unknown := labels < 0).any():
            raise UnreadableError(f"{path}: the mask holds the value {stored[is_unknown][0]}, which is not a label")
        return labels.astype(np.uint8)


@dataclass(frozen=True, eq=False)
class ColourMaskFiles(MaskFiles):
    """Masks in files whose ``colours`` [K] (65536 R + 256 G + B, sorted) have the labels ``meaning`` [K]."""

    colours: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, dtype=np.int64))

    def labels(self, image: Image.Image, path: Path) -> NDArray[np.uint8]:
        """The label of each pixel."""
        if image.mode not in ("RGB", "P"):
            raise UnreadableError(f"{path}: a mask of colours (mode RGB or P) is expected, got {image.mode}")
        pixels = np.asarray(image.convert("RGB"))
        flat, labels = pixels.reshape(-1, 3), np.empty(pixels.shape[:2], dtype=np.uint8)
        for part in row_slices(len(flat), 1, _PIXELS):
            codes = flat[part].astype(np.int64) @ np.array([65536, 256, 1])
            rows = np.searchsorted(self.colours, codes).clip(max=len(self.colours) - 1)
            if (is_unknown := self.colours[rows] != codes).any():
                colour = tuple(int(codes[is_unknown][0]).to_bytes(3, "big"))
                raise UnreadableError(f"{path}: the mask holds the colour {colour}, which is not a label")
            labels.reshape(-1)[part] = self.meaning[rows]
        return labels


def mask_dataset(
    folder: DataFolder,
    name: str,
    classes: Iterable[str],
    pairs: Iterable[tuple[str, str]],
    masks: MaskFiles,
    *,
    ignore_index: int,
    group: Callable[[str], str] | None = None,
) -> Dataset:
    """The data set of images and their masks; what is missing or broken is skipped.

    Args:
        folder: The data folder.
        name: Name of the data set.
        classes: In the order of the labels.
        pairs: An image and its mask, by their paths inside the data folder.
        masks: Without names yet: the data folder, and what the values in its masks mean.
        ignore_index: The label of pixels that do not count.
        group: From an image's path to its group, if there are groups.
    """
    root, findings = folder.root, folder.findings
    mask_of: dict[str, str] = {}
    for image, mask in pairs:
        try:
            paths = path_inside(root, image), path_inside(root, mask)
        except ValueError as error:
            findings.skip(image, NAME_OUT, str(error).rstrip("."))
            continue
        if image in mask_of:
            findings.skip(image, TWICE)
        elif not os.path.isfile(paths[0]):  # Path.is_file raises if the name is too long
            findings.skip(image, MISSING)
        elif not os.path.isfile(paths[1]):
            findings.skip(image, "mask that is missing", mask)
        elif folder.has_sound_image(image) and _fits(folder, image, dataclasses.replace(masks, names=(mask,))):
            mask_of[image] = mask
    return folder.dataset(
        name,
        tuple(classes),
        mask_of,
        np.full(len(mask_of), NO_CLASS),
        ImageFiles(root, tuple(mask_of)),
        masks=dataclasses.replace(masks, names=tuple(mask_of.values())),
        groups=None if group is None else tuple(map(group, mask_of)),
        ignore_index=ignore_index,
    )


def _fits(folder: DataFolder, image: str, mask: MaskFiles) -> bool:
    """Whether a mask can be read and has the size of its image; checked only with ``on_error="skip"``."""
    if folder.findings.on_error == "raise":
        return True
    try:
        size = mask[0].size
    except (ValueError, OSError) as error:
        folder.findings.skip(image, "mask that cannot be read", reason(error, mask.path(0)))
        return False
    if size != ImageFiles(folder.root, (image,)).header(0)[0]:
        folder.findings.skip(image, "image and mask of different sizes")
        return False
    return True


#: The classes of CamVid, and the original classes that each comprises.
CAMVID = {
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
_VOID = 11
_IMAGES, _MASKS, _COLOURS = "701_StillsRaw_full", "LabeledApproved_full", "label_colors.txt"


def _camvid_splits(root: Path) -> tuple[str, ...]:
    if (root / _IMAGES).is_dir() and (root / _MASKS).is_dir() and (root / _COLOURS).is_file():
        return ("all",)
    return tuple(s for s in ("train", "val", "test") if (root / s).is_dir() and (root / f"{s}annot").is_dir())


@reader(
    "camvid",
    summary="{train,val,test} and {train,val,test}annot; or 701_StillsRaw_full, LabeledApproved_full, label_colors.txt",
    splits=_camvid_splits,
)
def camvid(folder: DataFolder) -> Dataset:
    """Read CamVid with 11 classes; 11 (unlabelled) is ignored, any other value or colour in a mask is an error."""
    root, split = folder.root, folder.split
    masks = MaskFiles(root, (), meaning=label_table({value: value for value in range(_VOID + 1)}))
    if split == "all":
        pairs, masks = _pairs_by_stem(folder, _IMAGES, _MASKS, "_L"), _colour_masks(folder)
    elif (root / f"{split}.txt").is_file():
        pairs = _pairs_in_list(folder, f"{split}.txt")
    else:
        pairs = _pairs_by_stem(folder, split, f"{split}annot", "")
    return mask_dataset(folder, "camvid", CAMVID, pairs, masks, ignore_index=_VOID)


def _colour_masks(folder: DataFolder) -> ColourMaskFiles:
    """What each colour means, by lines "R G B name"."""
    labels = {name: label for label, names in enumerate(CAMVID.values()) for name in names} | {"Void": _VOID}
    meaning: dict[int, int] = {}
    path = folder.root / _COLOURS
    for number, line in enumerate(folder.lines(_COLOURS), start=1):
        *colour, name = line.split() or [""]
        if not name:
            continue
        try:
            red, green, blue = bytes(map(parse_count, colour))  # each from 0 to 255
            meaning[65536 * red + 256 * green + blue] = labels[name]
        except (ValueError, KeyError) as error:
            raise UnreadableError(f"{path}: line {number} is not a colour and one of CamVid's 32 classes") from error
    if not meaning:
        raise UnreadableError(f"{path}: the file names no colour")
    colours = np.array(sorted(meaning), dtype=np.int64)
    label_of = np.array([meaning[colour] for colour in colours.tolist()], dtype=np.int16)
    return ColourMaskFiles(folder.root, (), meaning=label_of, colours=colours)


def _pairs_in_list(folder: DataFolder, source: str) -> Iterator[tuple[str, str]]:
    for number, line in enumerate(folder.lines(source), start=1):
        names = line.split()
        if len(names) == 2:
            image, mask = ("/".join(PurePosixPath(name.replace("\\", "/")).parts[-2:]) for name in names)
            yield image, mask
        elif names:
            finding = "a line should name an image and a mask"
            folder.findings.skip(f"{source} line {number}", finding, f"{len(names)} names")


def _pairs_by_stem(folder: DataFolder, images: str, masks: str, ending: str) -> Iterator[tuple[str, str]]:
    """Each image with the mask of its stem and an ending."""
    by_stem = {stem(name): name for name in folder.files(masks)}
    for name in folder.files(images):
        key = f"{stem(name)}{ending}"
        yield f"{images}/{name}", f"{masks}/{by_stem.get(key, key + '.png')}"


#: Official id of each training class of Cityscapes, in the order of the training ids.
# fmt: off
CITYSCAPES = {
    "road": 7, "sidewalk": 8, "building": 11, "wall": 12, "fence": 13, "pole": 17, "traffic light": 19,
    "traffic sign": 20, "vegetation": 21, "terrain": 22, "sky": 23, "person": 24, "rider": 25, "car": 26, "truck": 27,
    "bus": 28, "train": 31, "motorcycle": 32, "bicycle": 33,
}
# fmt: on
IGNORED = 255
#: Ids run from 0 to 33; -1, the licence plate, could only be stored as 255.
FROM_IDS = label_table(
    dict.fromkeys((*range(34), 255), IGNORED) | {official: label for label, official in enumerate(CITYSCAPES.values())}
)
_FROM_TRAIN_IDS = label_table({i: i for i in (*range(len(CITYSCAPES)), IGNORED)})
_IMAGE, _IDS, _TRAIN_IDS = "_leftImg8bit.png", "_gtFine_labelIds.png", "_gtFine_labelTrainIds.png"


@reader(
    "cityscapes",
    summary="leftImg8bit/<split>/<city>/*_leftImg8bit.png and gtFine/<split>/<city>/*_gtFine_labelIds.png",
    splits=lambda root: tuple(
        s for s in ("train", "val", "test") if (root / "leftImg8bit" / s).is_dir() and (root / "gtFine" / s).is_dir()
    ),
)
def cityscapes(folder: DataFolder) -> Dataset:
    """Read Cityscapes with its 19 training classes; everything else is 255 and ignored. Groups are the cities."""
    images, masks = f"leftImg8bit/{folder.split}", f"gtFine/{folder.split}"
    stems = [name.removesuffix(_IMAGE) for name in folder.files(images) if name.endswith(_IMAGE)]
    # All masks of one kind: a table belongs to a split, not to a file.
    has_train_ids = bool(stems) and all(os.path.isfile(folder.root / masks / f"{s}{_TRAIN_IDS}") for s in stems)
    ending, meaning = (_TRAIN_IDS, _FROM_TRAIN_IDS) if has_train_ids else (_IDS, FROM_IDS)
    return mask_dataset(
        folder,
        "cityscapes",
        CITYSCAPES,
        ((f"{images}/{s}{_IMAGE}", f"{masks}/{s}{ending}") for s in stems),
        MaskFiles(folder.root, (), meaning=meaning),
        ignore_index=IGNORED,
        group=lambda name: name.split("/")[2],
    )
