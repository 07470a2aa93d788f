"""Counts and sizes that only a hostile file has: refused in a sentence, in time that grows no faster than the file."""

import json
import time

import numpy as np
import pytest
from PIL import Image

from calibrant.data import Vocabulary, read
from calibrant.data.inspection import inspect
from calibrant.data.layouts import recognise
from calibrant.data.readers import segmentation
from calibrant.data.readers._boxes import MAX_BOXES
from calibrant.data.readers.segmentation import CAMVID
from tests.helpers import box_files
from tests.helpers.box_files import skipped, write, xml
from tests.helpers.data_trees import TREES, imagenet, own, published_camvid
from tests.helpers.errors import facts

NAMES = [f"class {i}" for i in range(60_000)]
#: Seconds of CPU time; each case takes a tenth of it on a busy machine.
PATIENCE = 10.0


@pytest.fixture(autouse=True)
def soon():
    start = time.process_time()
    yield
    assert time.process_time() - start < PATIENCE


def deep(depth, opening=b"[", closing=b"]"):
    return opening * depth + closing * depth


@pytest.mark.parametrize(
    ("case", "name"),
    [
        ("coco", "annotations/instances_val2017.json"),
        ("calibrant", "dataset.json"),
        ("open-images", "bbox_labels_600_hierarchy.json"),
    ],
)
@pytest.mark.parametrize(
    "content",
    [
        deep(200_000),
        b'{"a":' * 200_000,
        b"{" + b",".join(b'"k%d":1' % i for i in range(100_000)) + b',"k7":2}',
        b"{" + b",".join(b'"k%d":1' % (i // 2) for i in range(200_000)) + b"}",
        b'{"images": ' + b"9" * 131_000 + b"}",
        b"\0" * 1000,
        b"",
    ],
    ids=["lists", "objects", "a repeated key", "all keys repeated", "digits", "zeros", "nothing"],
)
def test_hostile_json(tmp_path, case, name, content):
    make, layout, split, _ = TREES[case]
    root = make(tmp_path / "set")
    write(root / name, content)
    with pytest.raises(ValueError, match=facts(str(root / name))) as error:
        read(root, split, layout=layout)
    assert "\n" not in str(error.value)


def test_annotations_nested_as_deeply_as_json_allows(tmp_path):
    """A value that JSON's parser still takes and Python's repr does not."""
    image = b'{"id": 7, "file_name": "x.jpg", "width": 20, "height": 10}'
    for depth in (900, 957, 999):
        value = deep(depth)
        annotations = b'[{"image_id": %s}, {"image_id": 7, "category_id": %s}]' % (value, value)
        content = b'{"images": [%s], "annotations": %s, "categories": []}' % (image, annotations)
        root = box_files.coco(tmp_path / str(depth), content)
        with pytest.raises(ValueError, match=facts("instances_val2017.json")):
            read(root, "val2017")


def test_more_classes_than_anybody_has(tmp_path):
    content = box_files.coco_content() | {"categories": [{"id": i, "name": name} for i, name in enumerate(NAMES)]}
    data = read(box_files.coco(tmp_path / "coco", content), "val2017")
    assert (len(data.classes), data[0].label) == (60_000, 3)
    content["categories"].append({"id": 60_000, "name": "class 5"})
    assert read(box_files.coco(tmp_path / "coco", content), "val2017").classes[5] == "class 5 (5)"
    root = own(tmp_path / "own")
    description = json.loads((root / "dataset.json").read_text()) | {"classes": [*NAMES, "class 7"]}
    write(root / "dataset.json", json.dumps(description))
    with pytest.raises(ValueError, match=facts("dataset.json", "class")):
        read(root, "all")
    tiny = box_files.tiny_imagenet(tmp_path / "tiny")
    write(tiny / "wnids.txt", "\n".join(["n01", "n02", "n03", *NAMES]))
    assert len(read(tiny, "val").classes) == 60_003
    with pytest.raises(ValueError, match=facts("vocabulary")):
        Vocabulary.from_json(json.dumps({"words": ["<pad>", "<unk>", *NAMES, "class 9"]}))


def test_images_with_more_boxes_than_can_be_drawn(tmp_path):
    content = box_files.coco_content()
    sides = ({"id": i, "image_id": 7, "category_id": 3, "bbox": [i % 9, i % 5, 3, 3]} for i in range(MAX_BOXES + 1))
    content["annotations"] = [*sides, {"id": -1, "image_id": 5, "category_id": 3, "bbox": [1, 1, 3, 3]}]
    root = box_files.coco(tmp_path, content)
    with pytest.raises(ValueError, match=facts("val2017/x.jpg", "10000", "instances_val2017.json")):
        read(root, "val2017")
    data = read(root, "val2017", on_error="skip")
    assert list(skipped(data.report).values()) == [1]
    assert data.boxes.counts.tolist() == [1, 0]


def test_fields_beyond_the_limit_of_csv(tmp_path):
    root = imagenet(tmp_path / "imagenet")
    write(root / "LOC_val_solution.csv", 'a,"n00000001 ' + "1 " * 100_000 + '"\n')
    with pytest.raises(ValueError, match=facts("LOC_val_solution.csv", "CSV")):
        read(root, "val")
    root = box_files.open_images(tmp_path / "open", 'i1,x,"' + "a\n" * 100_000)
    with pytest.raises(ValueError, match=facts("annotations-bbox.csv", "CSV")):
        read(root, "train")


def test_numbers_of_many_digits(tmp_path):
    digits = "9" * 131_000
    root = published_camvid(tmp_path / "camvid")
    write(root / "label_colors.txt", f"{digits} 0 0 Sky\n")
    with pytest.raises(ValueError, match=facts("label_colors.txt", "1")):
        read(root, "all")
    root = box_files.voc(tmp_path / "voc")
    write(root / "Annotations/a.xml", xml([("bed", digits, 1, 2, 2)], "a.jpg"))
    with pytest.raises(ValueError, match=facts("Annotations/a.xml")):
        read(root, "train")
    root = box_files.open_images(tmp_path / "open", f"i1,x,/m/cat,1,{digits[:60_000]},1,0,1,0,0,0,0\n")
    with pytest.raises(ValueError, match=facts("annotations-bbox.csv")):
        read(root, "train")


XML = {
    "a long name": "<annotation><object><name>" + "A" * 4_000_000 + "</name></object></annotation>",
    "depth": "<annotation>" + "<a>" * 300_000 + "</a>" * 300_000 + "</annotation>",
    "depth without end": "<a>" * 200_000,
    "attributes": "<annotation " + " ".join(f'a{i}="x"' for i in range(100_000)) + "/>",
    "sides of many digits": f"<annotation><size><width>{'9' * 5000}</width><height>1e9</height></size></annotation>",
    "many objects": xml([("bed", 1, 1, 2, 2)] * 20_000, "a.jpg"),
}


@pytest.mark.parametrize("case", XML)
def test_hostile_xml(tmp_path, case):
    root = box_files.voc(tmp_path)
    write(root / "Annotations/a.xml", XML[case])
    kind, root = recognise(root)
    document = inspect(kind, root, ["train"])[0].to_json()
    assert len(json.dumps(document)) < 100_000


def test_masks_are_looked_up_part_by_part(tmp_path, monkeypatch):
    """30 pixels, seven at a time; the colours are (i, 0, 7) for the i-th of CamVid's 32 names."""
    monkeypatch.setattr(segmentation, "_PIXELS", 7)
    root = published_camvid(tmp_path)
    names = [label for label, group in enumerate(CAMVID.values()) for _ in group]
    which = np.random.default_rng(0).integers(0, len(names), (6, 5))
    colours = np.stack([which, np.zeros_like(which), np.full_like(which, 7)], axis=2).astype(np.uint8)
    Image.fromarray(colours).save(root / "LabeledApproved_full/a_L.png")
    mask = read(root, "all")[0].mask
    assert np.asarray(mask).tolist() == np.array(names)[which].tolist()
    colours[5, 4] = (9, 9, 9)
    Image.fromarray(colours).save(root / "LabeledApproved_full/a_L.png")
    with pytest.raises(ValueError, match=facts("(9, 9, 9)")):
        read(root, "all")[0]


def test_messages_name_some_splits_of_many(tmp_path):
    root = box_files.voc(tmp_path)
    for i in range(1200):
        write(root / f"ImageSets/Main/part{i:04}.txt", "a\n")
    with pytest.raises(ValueError, match=facts("1182")) as error:
        read(root, "nothing")
    assert len(str(error.value)) < 1000
