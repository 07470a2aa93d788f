"""A small sound data set in every layout that is read, for tests that damage it: ``TREES[name](folder)``."""

import gzip
import json
import pickle
import struct
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

from calibrant.data import Boxes, Dataset, ImageArray
from calibrant.data.readers.calibrant_folder import write_dataset
from calibrant.data.readers.cifar import CIFAR10
from calibrant.data.readers.image_folder import PACS as PACS
from calibrant.data.readers.segmentation import CAMVID
from tests.helpers import box_files
from tests.helpers.box_files import write, xml

PIXELS = np.random.default_rng(3).integers(0, 256, (4, 6, 5, 3), dtype=np.uint8)


def picture(path, number=0, mode="RGB"):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(PIXELS[number % 4]).convert(mode).save(path)


def mask(path, highest=3):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray((np.arange(30, dtype=np.uint8) % highest).reshape(6, 5)).save(path)


def arrays(root):
    root.mkdir(parents=True, exist_ok=True)
    features = np.arange(12, dtype=np.float32).reshape(4, 3)
    path = root / "features.npz"
    np.savez(path, x=features, y=np.array(["b", "a", "b", "a"]), ids=np.array(list("pqrs")), groups=np.arange(4))
    return path


def compressed_arrays(root):
    root.mkdir(parents=True, exist_ok=True)
    path = root / "images.npz"
    np.savez_compressed(path, images=PIXELS, labels=np.array([0, 1, 1, 0]), split=np.array(["all"] * 4))
    return path


def table(root):
    root.mkdir(parents=True, exist_ok=True)
    path = root / "table.parquet"
    columns = {"x": [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], "label": ["a", "b", "a"], "ids": ["1", "2", "3"]}
    pq.write_table(pa.table(columns), path, write_page_checksum=True)
    return path


def own(root):
    boxes = Boxes.of([[[0, 0, 2, 2]], [[1, 1, 4, 5], [0, 0, 1, 1]], [], [[0, 0, 5, 6]]], [[0], [1, 0], [], [1]])
    data = Dataset("toy", "all", ("a", "b"), tuple("pqrs"), [0, 1, -1, 1], ImageArray(PIXELS), boxes)
    write_dataset(data, root)
    return root


def camvid(root):
    for i in range(2):
        picture(root / f"train/{i}.png", i)
        mask(root / f"trainannot/{i}.png")
    write(root / "train.txt", "".join(f"/x/train/{i}.png /x/trainannot/{i}.png\n" for i in range(2)))
    return root


def published_camvid(root):
    names = [name for group in CAMVID.values() for name in group] + ["Void"]
    write(root / "label_colors.txt", "".join(f"{i} 0 7\t\t{name}\n" for i, name in enumerate(names)))
    picture(root / "701_StillsRaw_full/a.png")
    colours = np.zeros((6, 5, 3), np.uint8) + np.array([4, 0, 7], np.uint8)
    (root / "LabeledApproved_full").mkdir()
    Image.fromarray(colours).save(root / "LabeledApproved_full/a_L.png")
    return root


def cifar_10(root):
    pixels = np.random.default_rng(1).integers(0, 256, (3, 3072), dtype=np.uint8)
    for name in (*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"):
        write(root / name, pickle.dumps({"data": pixels, "labels": [1, 2, 9]}, protocol=2))
    write(root / "batches.meta", pickle.dumps({"label_names": list(CIFAR10)}, protocol=4))
    return root


def cifar_10_binary(root):
    row = bytes([3]) + bytes(range(256)) * 12
    write(root / "test_batch.bin", 2 * row)
    write(root / "batches.meta.txt", "\n".join(CIFAR10) + "\n")
    return root


def cifar_100_binary(root):
    write(root / "test.bin", (bytes([3, 40]) + bytes(3072)) * 2)
    write(root / "fine_label_names.txt", "\n".join(f"class {i}" for i in range(100)))
    return root


def cifar_10h(root):
    root.mkdir(parents=True, exist_ok=True)
    counts = np.arange(30).reshape(3, 10)
    np.save(root / "cifar10h-counts.npy", counts)
    np.save(root / "cifar10h-probs.npy", counts / counts.sum(axis=1, keepdims=True))
    write(root / "jpeg_index.csv", "cifar10_test_set_idx,label,path\n0,3,a.jpg\n1,5,b.jpg\n2,9,c.jpg\n")
    return root


def cityscapes(root):
    for i in range(2):
        picture(root / f"leftImg8bit/val/bonn/{i}_leftImg8bit.png", i)
        mask(root / f"gtFine/val/bonn/{i}_gtFine_labelIds.png", 20)
    return root


def image_folder(root):
    for i, suffix in enumerate(("jpg", "png", "bmp", "gif", "webp", "tif", "ppm")):
        picture(root / f"train/{'cat' if i % 2 else 'dog'}/{i}.{suffix}", i)
    return root


def imagenet(root):
    for i in range(2):
        picture(root / f"val/ILSVRC2012_val_{i}.JPEG".replace(".JPEG", ".jpg"), i)
        (root / f"val/ILSVRC2012_val_{i}.jpg").rename(root / f"val/ILSVRC2012_val_{i}.JPEG")
        write(root / f"Annotations/val/ILSVRC2012_val_{i}.xml", xml([("n00000001", 1, 1, 3, 3)], size=(5, 6)))
    rows = "".join(f"ILSVRC2012_val_{i},n0000000{i} 1 1 3 3 \n" for i in range(2))
    write(root / "LOC_val_solution.csv", f"ImageId,PredictionString\n{rows}")
    write(root / "LOC_synset_mapping.txt", "n00000000 tench, Tinca\nn00000001 goldfish\n")
    return root


def mnist(root):
    write(root / "train-images-idx3-ubyte", struct.pack(">4I", 0x803, 3, 4, 2) + bytes(range(24)))
    labels = struct.pack(">2I", 0x801, 3) + bytes([1, 7, 9])
    write(root / "train-labels-idx1-ubyte.gz", gzip.compress(labels, mtime=0))
    return root


def newsgroups(root):
    for i, group in enumerate(("alt.atheism", "sci.space")):
        write(root / f"20news-bydate-train/{group}/{i}", f"From: a\n\nHe wrote:\n> no\nYes {i}.\n--\nme")
    return root


def pacs(root):
    for i, name in enumerate(PACS):
        picture(root / f"photo/{name}/{i}.png", i)
    write(root / "photo_train_kfold.txt", "".join(f"photo/{name}/{i}.png {i + 1}\n" for i, name in enumerate(PACS)))
    return root


def voc_segmentation(root):
    for i in range(2):
        picture(root / f"JPEGImages/{i}.jpg", i)
        mask(root / f"SegmentationClass/{i}.png")
    write(root / "ImageSets/Segmentation/train.txt", "0\n1\n")
    return root


#: By the name of the case: what makes it, its layout, its split, and the options that it is read with.
TREES = {
    "arrays": (arrays, "arrays", "all", {}),
    "compressed arrays": (compressed_arrays, "arrays", "all", {}),
    "table": (table, "arrays", "all", {}),
    "calibrant": (own, "calibrant", "all", {}),
    "camvid": (camvid, "camvid", "train", {}),
    "published camvid": (published_camvid, "camvid", "all", {}),
    "cifar-10": (cifar_10, "cifar-10", "test", {}),
    "cifar-10 binary": (cifar_10_binary, "cifar-10", "test", {}),
    "cifar-100 binary": (cifar_100_binary, "cifar-100", "test", {}),
    "cifar-10h": (cifar_10h, "cifar-10h", "test", {}),
    "cityscapes": (cityscapes, "cityscapes", "val", {}),
    "coco": (box_files.coco, "coco", "val2017", {}),
    "cub": (box_files.cub, "cub", "test", {}),
    "image-folder": (image_folder, "image-folder", "train", {}),
    "imagenet": (imagenet, "imagenet", "val", {}),
    "mnist": (mnist, "mnist", "train", {}),
    "newsgroups": (newsgroups, "newsgroups", "train", {"remove": ["headers", "footers", "quotes"]}),
    "open-images": (box_files.open_images, "open-images", "train", {}),
    "pacs": (pacs, "pacs", "photo-train", {}),
    "tiny-imagenet": (box_files.tiny_imagenet, "tiny-imagenet", "val", {}),
    "voc": (box_files.voc, "voc", "train", {}),
    "voc-segmentation": (voc_segmentation, "voc-segmentation", "train", {}),
}


def files_of(root: Path) -> list[Path]:
    """The files of a tree, in order."""
    return [root] if root.is_file() else sorted(path for path in root.rglob("*") if path.is_file())


def hostile_json(path: Path) -> list[bytes]:
    """Documents that each have one value of a JSON file replaced by one of another kind."""
    document = json.loads(path.read_bytes())
    strange = (None, True, -1, 1e308, 10**400, "", "\ud800", [], [[[]]], {}, {"id": {}}, "x" * 300)
    variants = []
    for value in strange:
        for where in _places(document):
            changed = json.loads(path.read_bytes())
            inner = changed
            for key in where[:-1]:
                inner = inner[key]
            if where:
                inner[where[-1]] = value
            variants.append(json.dumps(changed if where else value).encode())
    return variants


def _places(value, where=()):
    yield where
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in list(pairs)[:3]:
        yield from _places(inner, (*where, key))
