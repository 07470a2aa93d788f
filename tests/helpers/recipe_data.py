"""Tiny data sets in the official layouts that the recipes name: noise with labels, a few samples of each class."""

import json
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
from PIL import Image

from tests.helpers.box_files import write, xml

SIZE = (44, 36)  # width and height of images that have no size of their own: not square, larger than the tests' crops
WRITERS: dict[str, Callable[[Path], None]] = {}


def written(layout: str, root: Path) -> Path | None:
    """A data set in a layout, once per folder; None for the embedded ones, which have no files."""
    if layout not in WRITERS:
        return None
    home = root / ("arrays.npz" if layout == "arrays" else layout)
    if not home.exists():
        WRITERS[layout](home)
    return home


def writer(layout):
    def enter(function):
        WRITERS[layout] = function
        return function

    return enter


def noise(path: Path, size=SIZE) -> None:
    """An image that no other has: its pixels follow from its path."""
    random = np.random.default_rng(list(path.as_posix()[-24:].encode()))
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(random.integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)).save(
        path, format="PNG" if path.suffix == ".png" else "JPEG"
    )


def mask(path: Path, values: list[int], size=SIZE) -> None:
    """Stripes of the values from left to right."""
    path.parent.mkdir(parents=True, exist_ok=True)
    stripes = np.repeat(values, -(-size[0] // len(values)))[: size[0]]
    Image.fromarray(np.tile(stripes, (size[1], 1)).astype(np.uint8)).save(path)


@writer("mnist")
def mnist(root: Path) -> None:
    random = np.random.default_rng(3)
    for part, number in (("train", 18), ("t10k", 5)):
        for kind, array in (
            ("images-idx3", random.integers(0, 256, (number, 28, 28), dtype=np.uint8)),
            ("labels-idx1", (np.arange(number) % 10).astype(np.uint8)),
        ):
            header = struct.pack(f">{1 + array.ndim}I", 0x800 + array.ndim, *array.shape)
            write(root / f"MNIST/raw/{part}-{kind}-ubyte", header + array.tobytes())


def _cifar_rows(number: int, labels: list[int], seed: int) -> bytes:
    pixels = np.random.default_rng(seed).integers(0, 256, (number, 3072), dtype=np.uint8)
    first = np.tile(np.array(labels, dtype=np.uint8), (number, 1))
    first[:, -1] = np.arange(number) % 10
    return np.concatenate([first, pixels], axis=1).tobytes()


@writer("cifar-10")
def cifar_10(root: Path) -> None:
    for i in range(1, 6):
        write(root / f"cifar-10-batches-bin/data_batch_{i}.bin", _cifar_rows(4, [0], i))
    write(root / "cifar-10-batches-bin/test_batch.bin", _cifar_rows(6, [0], 9))


@writer("cifar-100")
def cifar_100(root: Path) -> None:
    from calibrant.data.readers.cifar import CIFAR100

    home = root / "cifar-100-binary"
    write(home / "train.bin", _cifar_rows(20, [0, 0], 1))
    write(home / "test.bin", _cifar_rows(6, [0, 0], 2))
    write(home / "fine_label_names.txt", "\n".join(CIFAR100) + "\n")


@writer("imagenet")
def imagenet(root: Path) -> None:
    for split, each in (("train", 4), ("val", 2)):
        for wnid in ("n00000001", "n00000002", "n00000003"):
            for i in range(each):
                name = f"{wnid}_{split}{i}"
                noise(root / f"{split}/{wnid}/{name}.JPEG")
                objects = [(wnid, 2 + i, 3, 30, 30), (wnid, 20, 1, 40, 12)][: 1 + i % 2]
                text = xml(objects, name, SIZE)
                write(root / f"Annotations/CLS-LOC/{split}/{wnid}/{name}.xml", text)


@writer("tiny-imagenet")
def tiny_imagenet(root: Path) -> None:
    wnids = ("n00000001", "n00000002", "n00000003")
    write(root / "wnids.txt", "\n".join(wnids) + "\n")
    write(root / "words.txt", "".join(f"{w}\tthing {w[-1]}\n" for w in wnids))
    lines = []
    for wnid in wnids:
        for i in range(4):
            noise(root / f"train/{wnid}/images/{wnid}_{i}.JPEG", (64, 64))
        boxes = "".join(f"{wnid}_{i}.JPEG\t{4 * i}\t5\t60\t50\n" for i in range(4))
        write(root / f"train/{wnid}/{wnid}_boxes.txt", boxes)
        noise(root / f"val/images/val_{wnid[-1]}.JPEG", (64, 64))
        lines.append(f"val_{wnid[-1]}.JPEG\t{wnid}\t3\t4\t50\t61\n")
    write(root / "val/val_annotations.txt", "".join(lines))


@writer("arrays")
def table(path: Path) -> None:
    rng = np.random.default_rng(0)
    split = np.repeat(["train", "test"], (24, 6))
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez(path, x=rng.normal(size=(30, 30)), y=np.arange(30) % 2, classes=["malignant", "benign"], split=split)


@writer("open-images")
def open_images(root: Path) -> None:
    write(root / "class-descriptions-boxable.csv", "/m/cat,Cat\n/m/person,Person\n/m/woman,Woman\n/m/man,Man\n")
    people = {"LabelName": "/m/person", "Subcategory": [{"LabelName": "/m/man"}, {"LabelName": "/m/woman"}]}
    tree = {"LabelName": "/m/0bl9f", "Subcategory": [people, {"LabelName": "/m/cat"}]}
    write(root / "bbox_labels_600_hierarchy.json", json.dumps(tree))
    header = "ImageID,Source,LabelName,Confidence,XMin,XMax,YMin,YMax,IsOccluded,IsTruncated,IsGroupOf,IsDepiction\n"
    for split, number in (("train", 8), ("validation", 3), ("test", 4)):
        rows = []
        for i in range(number):
            noise(root / f"{split}/{split}{i}.jpg")
            leaf = ("/m/cat", "/m/man", "/m/woman")[i % 3]
            for label, corners in ((leaf, "0.1,0.8,0.2,0.9"), ("/m/man", "0,1,0,0.2")):
                rows.append(f"{split}{i},xclick,{label},1,{corners},0,0,0,0\n")
        write(root / f"{split}-annotations-bbox.csv", header + "".join(rows))


@writer("cub")
def cub(root: Path) -> None:
    classes = ("001.Black_Bird", "002.Red_Bird")
    write(root / "classes.txt", "".join(f"{i} {name}\n" for i, name in enumerate(classes, 1)))
    tables: dict[str, list[str]] = {}
    for i in range(1, 13):
        name = f"{classes[i % 2]}/bird_{i}.jpg"
        noise(root / "images" / name)
        row = {"images": name, "image_class_labels": 1 + i % 2, "train_test_split": int(i <= 8)}
        for table, value in (row | {"bounding_boxes": "3.0 4.0 30.0 20.0"}).items():
            tables.setdefault(table, []).append(f"{i} {value}\n")
    for table, lines in tables.items():
        write(root / f"{table}.txt", "".join(lines))


@writer("voc-segmentation")
def voc_segmentation(root: Path) -> None:
    for split, number in (("train", 5), ("val", 3)):
        names = [f"2007_{split}{i}" for i in range(number)]
        for i, name in enumerate(names):
            noise(root / f"JPEGImages/{name}.jpg")
            mask(root / f"SegmentationClass/{name}.png", [0, 1 + i, 255, 20])
        write(root / f"ImageSets/Segmentation/{split}.txt", "\n".join(names) + "\n")


@writer("cityscapes")
def cityscapes(root: Path) -> None:
    for split, number in (("train", 5), ("val", 3)):
        for i in range(number):
            stem = f"{split}/ulm/ulm_{i:06}_000019"
            noise(root / f"leftImg8bit/{stem}_leftImg8bit.png")
            mask(root / f"gtFine/{stem}_gtFine_labelIds.png", [7, 8, 0, 11, 26])


@writer("camvid")
def camvid(root: Path) -> None:
    for split, number in (("train", 5), ("val", 2), ("test", 3)):
        for i in range(number):
            noise(root / f"{split}/{split}{i}.png")
            mask(root / f"{split}annot/{split}{i}.png", [0, 3, 11, 8])


@writer("newsgroups")
def newsgroups(root: Path) -> None:
    words = ["the", "orbit", "of", "a", "goal", "on", "ice", "in", "space", "players", "launch", "season", "moon"]
    random = np.random.default_rng(5)
    for split, number in (("train", 8), ("test", 4)):
        for group in ("rec.sport.hockey", "sci.space"):
            for i in range(number):
                text = " ".join(random.choice(words, 40 + i))
                message = f"From: a@b\nSubject: {i}\n\n{text}\n"
                write(root / f"20news-bydate-{split}/{group}/{split}{i}", message)
                write(root / f"20_newsgroups/{group}/{split}{i}", message)


@writer("pacs")
def pacs(root: Path) -> None:
    for domain in ("photo", "sketch"):
        for name in ("dog", "elephant", "giraffe", "guitar", "horse", "house", "person"):
            for i in range(2):
                noise(root / f"{domain}/{name}/{domain}_{name}_{i}.jpg")


@writer("coco")
def coco(root: Path) -> None:
    for split, first in (("train2017", 0), ("val2017", 10)):
        images, objects = [], []
        for number in range(first, first + 4):
            noise(root / split / f"{number}.jpg")
            images.append({"id": number, "file_name": f"{number}.jpg", "width": SIZE[0], "height": SIZE[1]})
            objects.append({"id": number + 1, "image_id": number, "category_id": 1 + number % 2, "iscrowd": 0,
                            "bbox": [3 + number, 4, 20, 25], "area": 300})  # fmt: skip
        names = [{"id": 1, "name": "cat"}, {"id": 2, "name": "dog"}]
        content = {"images": images, "annotations": objects, "categories": names}
        write(root / f"annotations/instances_{split}.json", json.dumps(content))


@writer("voc")
def voc(root: Path) -> None:
    for split, first in (("train", 0), ("val", 10)):
        names = [f"{number:03}" for number in range(first, first + 4)]
        for number, name in enumerate(names, first):
            noise(root / f"JPEGImages/{name}.jpg")
            objects = [("bed" if number % 2 else "sofa", 3 + number, 4, 23 + number, 30)]
            write(root / f"Annotations/{name}.xml", xml(objects, f"{name}.jpg", SIZE))
        write(root / f"ImageSets/Main/{split}.txt", "".join(f"{name}\n" for name in names))
