"""PASCAL VOC, and data sets in the same format: one XML file of boxes per image, and VOC's label masks.

    Annotations/**/*.xml  JPEGImages/**  ImageSets/Main/<split>.txt     without ImageSets one split, "all"
    *.xml and images in one folder                                      one split, "all"
    JPEGImages  SegmentationClass  ImageSets/Segmentation/<split>.txt   the layout voc-segmentation

Labels of boxes follow the sorted names over all annotations of the folder, so that they agree between splits; VOC's own
20 if the names are among them and the set says that it is VOC: by its folder's name, by <folder>, or by having all 20.

An annotation's image is the one with its stem (Annotations/sub/a.xml: JPEGImages/sub/a.jpg), or else the one that
<filename> names, unless that has its own annotation; <path> is ignored, since it refers to the annotator's disk. Images
without an annotation are left out and counted: those in a list with its split, those in no list with every split.

A mask is a palette image whose indices are the labels: 0 background, 1..20 the classes; 255 (the rim) is ignored. With
SBD there is a split ``"train_aug"`` of 10,582 images: by ``SegmentationClassAug`` and ``train_aug.txt``, or by SBD's
own files (the Semantic Boundaries Dataset: masks of 11,355 more of VOC's images, in MATLAB files), from which the list
follows: the images of SBD's two lists and of VOC's ``train``, without VOC's ``val``. Where both have a mask, VOC's own
is taken. SBD is looked for inside the VOC folder, as ``SBD`` or as its archive unpacks (``benchmark_RELEASE/dataset``):

    cls/<stem>.mat   train.txt   val.txt

torchvision's readers support only the official years of VOC, and check neither names nor values.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from calibrant.data.dataset import ALIKE, Dataset, Findings, group_similar
from calibrant.data.files import SUFFIXES, UnreadableError
from calibrant.data.readers._boxes import (
    Annotation,
    BoxSamples,
    class_labels,
    parse_annotation,
    parse_box,
    rename_classes,
)
from calibrant.data.readers._folder import (
    BAD_ANNOTATION,
    LATIN_1,
    ONE_STEM,
    TWICE,
    DataFolder,
    join_path,
    reader,
    reason,
    stem,
)
from calibrant.data.readers.segmentation import IGNORED, MaskFiles, label_table, mask_dataset

# fmt: off
CLASSES = (
    "aeroplane", "bicycle", "bird", "boat", "bottle", "bus", "car", "cat", "chair", "cow", "diningtable", "dog",
    "horse", "motorbike", "person", "pottedplant", "sheep", "sofa", "train", "tvmonitor",
)
# fmt: on
_LISTS = "ImageSets/Main"
_SBD_FOLDERS = ("SBD", "benchmark_RELEASE/dataset")
#: Bytes of the largest MATLAB file that is opened: those of SBD have some ten thousand.
_LARGEST_MATLAB = 2**24
_ALL = ("all",)
_XML = frozenset({".xml"})
_VOC = re.compile(r"VOC(20\d\d)?")
_OTHER_IMAGE = "annotation that names another image: the image of its own name is used"
_NO_IMAGE = "annotation that names a missing image: the image beside it is used"


def _splits(root: Path) -> tuple[str, ...]:
    if os.path.isdir(root / "Annotations") and os.path.isdir(root / "JPEGImages"):
        return (_lists(root) or _ALL) if _has_files(root / "Annotations", _XML, deeper=True) else ()
    return _ALL if _has_files(root, _XML) and _has_files(root, SUFFIXES) else ()


def _has_files(folder: Path, suffixes: frozenset[str], deeper: bool = False) -> bool:
    """Whether a file of the kind is in a folder, or in one of the folders in it."""
    folders = []
    with os.scandir(folder) as entries:
        for entry in entries:
            if os.path.splitext(entry.name)[1].lower() in suffixes:
                return True
            if deeper and os.path.isdir(entry.path):
                folders.append(Path(entry.path))
    return any(_has_files(path, suffixes) for path in folders)


def _lists(root: Path) -> tuple[str, ...]:
    """The lists of images in ImageSets/Main, without those of one class each ("cow_train" beside "train")."""
    if not os.path.isdir(root / _LISTS):
        return ()
    names = {stem(name) for name in os.listdir(root / _LISTS) if name.endswith(".txt")}
    return tuple(sorted(name for name in names if name.rpartition("_")[2] not in names - {name}))


@reader(
    "voc",
    summary="Annotations/*.xml, JPEGImages, ImageSets/Main/<split>.txt; or XML files beside their images",
    splits=_splits,
    rank=50,
)
def voc(
    folder: DataFolder, *, classes: Sequence[str] | None = None, rename: Mapping[str, str] | None = None
) -> Dataset:
    """Read a data set in VOC's format; an image's class is that of its largest box.

    Args:
        folder: With Annotations, or with XML files and images; a split is a list in ImageSets/Main, or ``"all"``.
        classes: The classes, in the order of the labels; boxes of others are kept without a class.
        rename: New names by old ones, which merges classes ("trash can" to "trashcan"); an empty new name drops a
            class's boxes.
    """
    root, findings, samples = folder.root, folder.findings, BoxSamples(folder)
    xml_folder, image_folder = ("Annotations", "JPEGImages") if (root / "Annotations").is_dir() else ("", "")
    files = {stem(name): join_path(xml_folder, name) for name in folder.files(xml_folder, _XML)}
    annotations = {key: _parse(root / file) for key, file in files.items()}
    sources: dict[str, list[str]] = {}  # the files in which each name occurs, once per box
    for key, annotation in annotations.items():
        for name, _ in annotation.objects if isinstance(annotation, Annotation) else ():
            sources.setdefault(name, []).append(files[key])
    new_names = rename_classes(sorted(sources), rename, root)
    _report_names(findings, sources, new_names)
    if classes is None:
        names = set(new_names.values()) - {""}
        classes = CLASSES if names <= set(CLASSES) and _is_voc(folder, names, annotations) else sorted(names)
    classes, labels = class_labels(sorted(sources), classes, rename, root)
    images = _Images(samples, image_folder, files)
    for key in _stems_of_split(folder, files):
        annotation = annotations[key]
        if not isinstance(annotation, Annotation):
            findings.skip(files[key], BAD_ANNOTATION, reason(annotation, root / files[key]))
            continue
        if annotation.guessed:
            findings.odd(files[key], f"annotation that is {LATIN_1}")
        image = images.of(key, annotation.filename)
        if image is not None:
            objects = [(labels[name], corners) for name, corners in annotation.objects]
            samples.add_labelled(image, objects, parse_box, size=annotation.size, source=files[key])
    images.report_others(annotations)
    return samples.dataset(folder.name, classes)


def _is_voc(folder: DataFolder, names: set[str], annotations: Mapping[str, Annotation | Exception]) -> bool:
    """Whether a data set with VOC's class names is VOC, by its folder or by having all classes."""
    folders = (a.folder for a in annotations.values() if isinstance(a, Annotation))
    return names == set(CLASSES) or any(map(_VOC.fullmatch, (folder.root.resolve().name, folder.name, *folders)))


def _parse(path: Path) -> Annotation | Exception:
    """The annotation or the error: broken files matter only in the split that is read."""
    try:
        return parse_annotation(path)
    except (UnreadableError, OSError) as error:
        return error


def _stems_in_list(folder: DataFolder, split: str, stems: Container[str]) -> Iterator[str]:
    """The stems in a list, with or without the image's suffix; unknown ones as they are written."""
    for line in filter(str.strip, folder.lines(f"{_LISTS}/{split}.txt")):
        names = line.strip(), line.split()[0]  # a second column is about a class
        images = (stem(name) for name in names if os.path.splitext(name)[1].lower() in SUFFIXES)
        yield next((name for name in (*names, *images) if name in stems), names[1])


def _stems_of_split(folder: DataFolder, files: Mapping[str, str]) -> Iterator[str]:
    """The stems of a split, in the order of its list."""
    if not (folder.root / "Annotations").is_dir() or not _lists(folder.root):
        yield from files
        return
    stems = set()
    for name in _stems_in_list(folder, folder.split, files):
        location = f"{_LISTS}/{folder.split}.txt, {name[:200]!r}"
        if name not in files:
            folder.findings.skip(location, "listed image without an annotation")
        elif name in stems:
            folder.findings.skip(location, TWICE)
        else:
            stems.add(name)
            yield name


class _Images:
    """The images of a data set, and the annotations that they belong to."""

    def __init__(self, samples: BoxSamples, folder: str, files: Mapping[str, str]):
        self.samples, self.folder, self.files = samples, folder, files
        self.by_stem: dict[str, list[str]] = {}
        for name in samples.listing(folder):
            self.by_stem.setdefault(stem(name), []).append(name)

    def of(self, key: str, filename: str) -> str | None:
        """The id of an annotation's image, or None if it is missing."""
        findings, source = self.samples.findings, self.files[key]
        names = self.by_stem.get(key, [])
        is_listed = filename in self.samples.listing(self.folder)
        if names:
            matches = [name for name in names if filename in (name, name.rpartition("/")[2])]
            if len(names) > 1:
                findings.odd(", ".join(join_path(self.folder, name) for name in names), ONE_STEM)
            if is_listed and not matches:
                findings.odd(source, _OTHER_IMAGE)
            elif not matches and filename not in ("", key, key.rpartition("/")[2]):
                findings.odd(source, _NO_IMAGE)
            return join_path(self.folder, (matches or names)[0])
        if is_listed and stem(filename) in self.files:
            findings.skip(source, TWICE, f"{filename!r} has an annotation of its own")
            return None
        return self.samples.find(self.folder, filename or f"{key}.jpg", source)

    def report_others(self, annotations: Mapping[str, Annotation | Exception]) -> None:
        """Report the images without an annotation; those in a list are reported with its split."""
        stems = set(self.files)
        for key, annotation in annotations.items():
            if isinstance(annotation, Annotation) and key not in self.by_stem:
                stems.add(stem(annotation.filename))
        folder = self.samples.folder
        if self.folder:
            stems |= {name for split in _lists(folder.root) for name in _stems_in_list(folder, split, self.by_stem)}
        names = {join_path(self.folder, name) for key in self.by_stem.keys() & stems for name in self.by_stem[key]}
        self.samples.leave_out_unannotated(self.folder, names)


def _report_names(findings: Findings, sources: Mapping[str, list[str]], new_names: Mapping[str, str]) -> None:
    """Report names that look like typos: nearly the same as another, or of a single box."""
    files: dict[str, list[str]] = {}
    for name, paths in sources.items():
        files.setdefault(new_names[name], []).extend(paths)
    files.pop("", None)
    for group in group_similar(files):
        usual, *variants = sorted(group, key=lambda name: -len(files[name]))
        for name in variants:
            examples = ", ".join(dict.fromkeys(files[name][:3]))
            findings.odd(f"{name!r} ({len(files[name])}) beside {usual!r} ({len(files[usual])}), in {examples}", ALIKE)
    for name, paths in files.items():
        if len(paths) == 1:
            findings.odd(f"{name!r} in {paths[0]}", "class with a single box")


_MASK_SPLITS = ("train", "val", "trainval", "test")
_AUGMENTED = "train_aug"
_MASK_LISTS = "ImageSets/Segmentation"


def _mask_splits(root: Path) -> tuple[str, ...]:
    if not (root / "JPEGImages").is_dir():
        return ()
    names = _MASK_SPLITS if (root / "SegmentationClass").is_dir() else ()
    splits = [name for name in names if (root / _MASK_LISTS / f"{name}.txt").is_file()]
    has_list = (root / _MASK_LISTS / f"{_AUGMENTED}.txt").is_file() and (root / "SegmentationClassAug").is_dir()
    return (*splits, _AUGMENTED) if has_list or ({"train", "val"} <= {*splits} and _sbd_folder(root)) else tuple(splits)


@reader(
    "voc-segmentation",
    summary="JPEGImages, SegmentationClass and ImageSets/Segmentation/{train,val,trainval}.txt",
    splits=_mask_splits,
    rank=60,  # a complete VOC folder has boxes as well, which are used more often
    absent={
        _AUGMENTED: "it needs SBD: SegmentationClassAug with ImageSets/Segmentation/train_aug.txt, or SBD's own "
        "cls/*.mat, train.txt and val.txt in a folder SBD or benchmark_RELEASE/dataset"
    },
)
def voc_segmentation(folder: DataFolder) -> Dataset:
    """Read PASCAL VOC with its 21 classes, background first; 255 is ignored, other values are an error."""
    meaning = label_table({value: value for value in (*range(len(CLASSES) + 1), IGNORED)})
    masks = SbdMaskFiles(folder.root, (), meaning=meaning)
    pairs, classes = _mask_pairs(folder), ("background", *CLASSES)
    return mask_dataset(folder, "voc-segmentation", classes, pairs, masks, ignore_index=IGNORED)


def _mask_pairs(folder: DataFolder) -> Iterator[tuple[str, str]]:
    """Pairs of image and mask; a line is a stem, or (in some copies of train_aug.txt) both paths."""
    is_augmented = folder.split == _AUGMENTED
    sbd = _sbd_folder(folder.root) if is_augmented else None
    source = f"{_MASK_LISTS}/{folder.split}.txt"
    if is_augmented and sbd is not None and not (folder.root / source).is_file():
        for name in _augmented_stems(folder, sbd):
            yield f"JPEGImages/{name}.jpg", _mask_file(folder.root, name, sbd)
        return
    for line in folder.lines(source):
        names = [name.lstrip("/") for name in line.split()]
        if len(names) == 1:
            mask = _mask_file(folder.root, names[0], sbd) if is_augmented else f"SegmentationClass/{names[0]}.png"
            yield f"JPEGImages/{names[0]}.jpg", mask
        elif names:
            yield names[0], names[1]


def _sbd_folder(root: Path) -> str | None:
    """SBD's folder inside a VOC folder, if it has masks and lists."""
    for name in _SBD_FOLDERS:
        if (root / name / "cls").is_dir() and all((root / name / f"{s}.txt").is_file() for s in ("train", "val")):
            return name
    return None


def _augmented_stems(folder: DataFolder, sbd: str) -> list[str]:
    """VOC's training images, then those of SBD that are in neither of VOC's lists."""
    train, val = (_stems(folder, f"{_MASK_LISTS}/{split}.txt") for split in ("train", "val"))
    sbd_stems = dict.fromkeys(_stems(folder, f"{sbd}/train.txt") + _stems(folder, f"{sbd}/val.txt"))
    voc_stems = {*train, *val}
    return [*train, *(name for name in sbd_stems if name not in voc_stems)]


def _stems(folder: DataFolder, source: str) -> list[str]:
    return [line.split()[0] for line in folder.lines(source) if line.strip()]


def _mask_file(root: Path, name: str, sbd: str | None) -> str:
    """The mask of an image: in the augmented folder, in VOC's, or in SBD's."""
    for path in (f"SegmentationClassAug/{name}.png", f"SegmentationClass/{name}.png"):
        if sbd is None or os.path.isfile(root / path):
            return path
    return f"{sbd}/cls/{name}.mat"


@dataclass(frozen=True, eq=False)
class SbdMaskFiles(MaskFiles):
    """Masks in image files and in SBD's MATLAB files."""

    def open(self, index: int, draft: Callable[[Image.Image], object] | None = None) -> Image.Image:
        """The mask."""
        path = self.path(index)
        if path.suffix != ".mat":
            return super().open(index, draft)
        stored = Image.fromarray(_segmentation(path))
        return Image.fromarray(self.labels(stored, path))


def _segmentation(path: Path) -> NDArray[np.uint8]:
    """``GTcls.Segmentation`` of a MATLAB file."""
    from scipy.io import loadmat  # here, because it is rarely needed

    if path.stat().st_size > _LARGEST_MATLAB:
        raise UnreadableError(
            f"{path}: a mask of SBD has at most {_LARGEST_MATLAB:,} bytes, got {path.stat().st_size:,}"
        )
    try:
        labels = loadmat(path, variable_names=["GTcls"])["GTcls"]["Segmentation"][0, 0]
    except OSError:
        raise
    except Exception as error:  # whatever a damaged file makes SciPy raise
        raise UnreadableError(f"{path}: not a mask of SBD (GTcls.Segmentation in a MATLAB file)") from error
    if not isinstance(labels, np.ndarray) or labels.dtype != np.uint8 or labels.ndim != 2:
        raise UnreadableError(f"{path}: GTcls.Segmentation must be an array of 8-bit labels [H, W]")
    return np.ascontiguousarray(labels)
