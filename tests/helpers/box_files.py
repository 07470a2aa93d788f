"""Small data sets with boxes, written in their official layouts, for the tests of the readers."""

import json
from pathlib import Path

from PIL import Image

from calibrant.data.dataset import Report


def write(path, text, encoding="utf-8"):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text if isinstance(text, bytes) else text.encode(encoding))
    return path


def image(path, size=(20, 10), mode="RGB"):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new(mode, size, 7 if mode == "L" else None).save(path, format="PNG" if path.suffix == ".png" else "JPEG")
    return path


def cut(path, keep=0.6):
    """Cut off the end of a file."""
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * keep)])


def skipped(report: Report):
    return {what: times for what, times, _ in report.skipped}


def odd(report: Report):
    return {what: times for what, times, _ in report.odd}


def xml(objects, filename="", size=(20, 10)):
    """An annotation in VOC's form; objects are (name, x1, y1, x2, y2)."""
    boxes = "".join(
        f"<object><name>{name}</name><difficult>1</difficult><bndbox><xmin>{x1}</xmin><ymin>{y1}</ymin>"
        f"<xmax>{x2}</xmax><ymax>{y2}</ymax></bndbox></object>"
        for name, x1, y1, x2, y2 in objects
    )
    sides = "" if size is None else f"<size><width>{size[0]}</width><height>{size[1]}</height><depth>3</depth></size>"
    return f"<annotation><filename>{filename}</filename><path>/etc/passwd</path>{sides}{boxes}</annotation>"


def tiny_imagenet(root: Path) -> Path:
    write(root / "wnids.txt", "n02\nn01\nn03\n")
    write(root / "words.txt", "n01\tcrane, bird\nn02\tbee\nn03\tcrane\nn99\tother\n")
    for wnid, number in (("n01", 2), ("n02", 1), ("n03", 1)):
        for i in range(number):
            image(root / f"train/{wnid}/images/{wnid}_{i}.JPEG", (64, 64), "L" if i else "RGB")
    write(root / "train/n01/n01_boxes.txt", "n01_0.JPEG\t0\t10\t63\t58\nn01_1.JPEG\t5\t5\t5\t9\n")
    write(root / "train/n02/n02_boxes.txt", "n02_0.JPEG\t1\t2\t3\t4\n")
    write(root / "train/n03/n03_boxes.txt", "n03_0.JPEG\t0\t0\t62\t62\n")
    for i in (3, 0):
        image(root / f"val/images/val_{i}.JPEG", (64, 64))
    write(root / "val/val_annotations.txt", "val_3.JPEG\tn03\t0\t32\t44\t62\nval_0.JPEG\tn02\t4\t0\t60\t55\n")
    image(root / "test/images/test_0.JPEG", (64, 64))
    return root


def voc(root: Path) -> Path:
    objects = {
        "a": [("trashcan", 1, 1, 5, 5), ("bed", 2, 2, 12.5, 9)],
        "b": [("trash can", 0, 0, 4, 4), ("trashcan", 0, 0, 4, 4), ("trashcan", 1, 1, 2, 2)],
        "c": [("bed", 3, 3, 3, 8), ("trash can", 15, 5, 25, 9)],
        "d": [],
        "e": [("sofa", 1, 1, 2, 2)],
    }
    for stem, rows in objects.items():
        image(root / f"JPEGImages/{stem}.jpg", mode={"b": "L", "c": "CMYK"}.get(stem, "RGB"))
        write(root / f"Annotations/{stem}.xml", xml(rows, f"{stem}.jpg"))
    write(root / "ImageSets/Main/train.txt", "c\na\nb\nd\n")
    write(root / "ImageSets/Main/val.txt", "e\n")
    write(root / "ImageSets/Main/bed_train.txt", "a  1\nb -1\n")
    return root


def coco_content():
    return {
        "images": [
            {"id": 7, "file_name": "x.jpg", "width": 20, "height": 10},
            {"id": 5, "file_name": "y.jpg", "width": 20, "height": 10},
            {"id": 9, "file_name": "z.jpg", "width": 20, "height": 10},
        ],
        "annotations": [
            {"id": 1, "image_id": 7, "category_id": 3, "bbox": [1, 2, 3.5, 4], "iscrowd": 0, "segmentation": [[1, 2]]},
            {"id": 2, "image_id": 7, "category_id": 90, "bbox": [0, 0, 20, 10], "iscrowd": 1},
            {"id": 3, "image_id": 5, "category_id": 90, "bbox": [15, 5, 10, 0], "iscrowd": 0},
            {"id": 4, "image_id": 7, "category_id": 90, "bbox": [0, 0, 2, 2], "iscrowd": 0},
        ],
        "categories": [{"id": 90, "name": "toothbrush"}, {"id": 3, "name": "car"}, {"id": 4, "name": "bus"}],
    }


def coco(root: Path, content=None) -> Path:
    for name in "xyz":
        image(root / f"val2017/{name}.jpg")
    content = coco_content() if content is None else content
    write(root / "annotations/instances_val2017.json", content if isinstance(content, bytes) else json.dumps(content))
    write(root / "annotations/captions_val2017.json", "{}")
    return root


def open_images(root: Path, more="") -> Path:
    for name, size in (("i1", (20, 10)), ("i2", (40, 20)), ("i3", (20, 10)), ("i4", (20, 10)), ("i5", (20, 10))):
        image(root / f"train/{name}.jpg", size)
    header = "ImageID,Source,LabelName,Confidence,XMin,XMax,YMin,YMax,IsOccluded,IsTruncated,IsGroupOf,IsDepiction\n"
    rows = [
        "i2,xclick,/m/man,1,0.25,0.5,0.1,0.6,0,0,0,0",
        "i1,xclick,/m/cat,1,0.5,1,0,0.5,0,0,0,0",
        "i2,xclick,/m/cat,1,0,1,0,1,0,0,1,0",
        "i3,xclick,/m/person,1,0,1,0,1,0,0,0,0",
        "i1,xclick,/m/person,1,0,1,0,1,0,0,0,0",
        "i4,xclick,/m/woman,1,0.1,0.1,0,0.5,0,0,-1,0",
        "gone,xclick,/m/man,1,0,1,0,1,0,0,0,0",
    ]
    write(root / "oidv6-train-annotations-bbox.csv", header + "\n".join(rows) + "\n" + more)
    write(root / "class-descriptions-boxable.csv", "/m/cat,Cat\n/m/person,Person\n/m/woman,Woman\n/m/man,Man\n")
    tree = {
        "LabelName": "/m/0bl9f",
        "Subcategory": [
            {"LabelName": "/m/person", "Subcategory": [{"LabelName": "/m/man"}, {"LabelName": "/m/woman"}]},
            {"LabelName": "/m/cat", "Part": [{"LabelName": "/m/ear"}]},
        ],
    }
    write(root / "bbox_labels_600_hierarchy.json", json.dumps(tree))
    return root


def cub(root: Path) -> Path:
    for name in ("001.Black_Bird/a.jpg", "002.Red_Bird/b.jpg", "002.Red_Bird/c.jpg"):
        image(root / "images" / name)
    write(root / "images.txt", "1 001.Black_Bird/a.jpg\n2 002.Red_Bird/b.jpg\n3 002.Red_Bird/c.jpg\n")
    write(root / "classes.txt", "1 001.Black_Bird\n2 002.Red_Bird\n")
    write(root / "image_class_labels.txt", "1 1\n2 2\n3 2\n")
    write(root / "train_test_split.txt", "1 0\n2 1\n3 0\n")
    write(root / "bounding_boxes.txt", "1 2.0 1.0 5.5 4.0\n2 0.0 0.0 20.0 10.0\n3 18.0 0.0 5.0 5.0\n")
    return root
