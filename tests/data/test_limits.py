"""Counts and sizes that only a hostile file has: refused in a sentence, in time that grows no faster than the file."""

import json
import pickle
import struct
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
from tests.helpers.data_trees import TREES, cifar_10, cifar_10h, imagenet, own, published_camvid
from tests.helpers.errors import facts

NAMES = [f"class {i}" for i in range(150_000)]
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
    ("content", "message"),
    [
        (deep(200_000), "nested"),
        (b'{"a":' * 200_000, "nested"),
        (b"{" + b",".join(b'"k%d":1' % i for i in range(100_000)) + b',"k7":2}', "'k7' (occurs|appears) twice"),
        (b"{" + b",".join(b'"k%d":1' % (i // 2) for i in range(200_000)) + b"}", "(occurs|appears) twice"),
        (b'{"images": ' + b"9" * 131_000 + b"}", "a number has too many digits"),
        (b"\0" * 1000, r"dataset\.json|not JSON"),
        (b"", r"dataset\.json|not JSON"),
    ],
    ids=["lists", "objects", "a repeated key", "all keys repeated", "digits", "zeros", "nothing"],
)
def test_hostile_json(tmp_path, case, name, content, message):
    make, layout, split, _ = TREES[case]
    root = make(tmp_path / "set")
    write(root / name, content)
    with pytest.raises(ValueError, match=message) as error:
        read(root, split, layout=layout)
    assert str(root / name) in str(error.value)


def test_annotations_nested_as_deeply_as_json_allows(tmp_path):
    """A value that JSON's parser still takes and Python's repr does not."""
    image = b'{"id": 7, "file_name": "x.jpg", "width": 20, "height": 10}'
    for depth in range(900, 1000, 7):
        value = deep(depth)
        annotations = b'[{"image_id": %s}, {"image_id": 7, "category_id": %s}]' % (value, value)
        content = b'{"images": [%s], "annotations": %s, "categories": []}' % (image, annotations)
        root = box_files.coco(tmp_path / str(depth), content)
        with pytest.raises(ValueError, match=r"nested too deeply|annotation of an image that is not listed"):
            read(root, "val2017")


def test_150000_classes(tmp_path):
    content = box_files.coco_content() | {"categories": [{"id": i, "name": name} for i, name in enumerate(NAMES)]}
    data = read(box_files.coco(tmp_path / "coco", content), "val2017")
    assert (len(data.classes), data[0].label) == (150_000, 3)
    content["categories"].append({"id": 150_000, "name": "class 5"})
    assert read(box_files.coco(tmp_path / "coco", content), "val2017").classes[5] == "class 5 (5)"
    root = own(tmp_path / "own")
    description = json.loads((root / "dataset.json").read_text()) | {"classes": [*NAMES, "class 7"]}
    write(root / "dataset.json", json.dumps(description))
    with pytest.raises(ValueError, match="no class, or one that occurs more than once"):
        read(root, "all")
    tiny = box_files.tiny_imagenet(tmp_path / "tiny")
    write(tiny / "wnids.txt", "\n".join(["n01", "n02", "n03", *NAMES]))
    assert len(read(tiny, "val").classes) == 150_003
    with pytest.raises(ValueError, match="has each word once"):
        Vocabulary.from_json(json.dumps({"words": ["<pad>", "<unk>", *NAMES, "class 9"]}))


def test_images_with_more_boxes_than_can_be_drawn(tmp_path):
    content = box_files.coco_content()
    sides = ({"id": i, "image_id": 7, "category_id": 3, "bbox": [i % 9, i % 5, 3, 3]} for i in range(MAX_BOXES + 1))
    content["annotations"] = [*sides, {"id": -1, "image_id": 5, "category_id": 3, "bbox": [1, 1, 3, 3]}]
    root = box_files.coco(tmp_path, content)
    message = r"val2017/x\.jpg: image with more than 10000 boxes \(in annotations/instances_val2017\.json\)"
    with pytest.raises(ValueError, match=message):
        read(root, "val2017")
    data = read(root, "val2017", on_error="skip")
    assert skipped(data.report) == {"image with more than 10000 boxes": 1}
    assert data.boxes.counts.tolist() == [1, 0]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('0,3,"' + "a" * 200_000 + '"', "not CSV"),
        ("9" * 131_000 + ",3,a.jpg", facts("99", "['99")),
        ("0,3", facts("['0', '3']")),
        ("0,-3,a.jpg", "should be a row"),
        ("\u0660,3,a.jpg", "should be a row"),
        ("00000000000,10,a.jpg", "outside the 3 rows"),
    ],
)
def test_lines_of_an_index(tmp_path, line, message):
    root = cifar_10h(tmp_path)
    write(root / "jpeg_index.csv", line + "\n")
    with pytest.raises(ValueError, match=message) as error:
        read(root, "test")
    assert len(str(error.value)) < 400


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
    with pytest.raises(ValueError, match="line 1 is not a colour"):
        read(root, "all")
    root = box_files.voc(tmp_path / "voc")
    write(root / "Annotations/a.xml", xml([("bed", digits, 1, 2, 2)], "a.jpg"))
    with pytest.raises(ValueError, match="box that is not made of numbers"):
        read(root, "train")
    root = box_files.open_images(tmp_path / "open", f"i1,x,/m/cat,1,{digits[:60_000]},1,0,1,0,0,0,0\n")
    with pytest.raises(ValueError, match="box that is not made of numbers"):
        read(root, "train")


LABELS = b"\x80\x02}U\x06labels"
PICKLES = {
    "tuples in tuples": (b"\x80\x02N" + b"\x85" * 300_000 + b".", "should hold a dictionary, and holds tuple"),
    "lists in lists": (b"\x80\x02" + b"]" * 200_000 + b"a" * 199_999 + b".", "holds list"),
    "a list in itself": (LABELS + b"]q\x00h\x00as.", "'data' should be a uint8 array"),
    "a dictionary in itself": (b"}q\x00U\x01ah\x00s.", "'data' should be a uint8 array"),
    "opcodes": (b"\x80\x02(" + b"N" * 1_000_001 + b"t.", "more than 1000000 opcodes"),
    "digits": (b"I" + b"9" * 131_000 + b"\n.", "a number has too many digits"),
    "a long number": (b"\x8b" + struct.pack("<i", 10**6) + b"\x7f" * 10**6 + b".", "holds int"),
    "a long label": (LABELS + b"]\x8b" + struct.pack("<i", 10**6) + b"\x7f" * 10**6 + b"as.", "'data' should be"),
    "a huge count": (b"\x8d\xff\xff\xff\xff\xff\xff\xff\x7fabc.", "truncated or broken"),
    "a count below zero": (b"\x8b\xff\xff\xff\xff.", "truncated or broken"),
    "a memory that is empty": (b"h\x07.", "truncated or broken"),
    "a mark that is missing": (b"]e.", "truncated or broken"),
    "a stack that is empty": (b"R.", "empty stack"),
    "a shape of tuples": (
        b"\x80\x02}(U\x04datacnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(K\x00tU\x01btR(K\x01N"
        + b"\x85" * 200_000
        + b"cnumpy\ndtype\n(U\x02u1K\x00K\x01tR\x89U\x00tbu.",
        "0 bytes for an array of shape a tuple",
    ),
    "an extension": (b"\x82\x01.", "uses the opcode EXT1"),
    "an object": (b"(icollections\nOrderedDict\n.", "uses the opcode INST"),
    "a persistent id": (b"Px\n.", "uses the opcode PERSID"),
}


@pytest.mark.parametrize("case", PICKLES)
def test_hostile_pickles(tmp_path, case):
    content, message = PICKLES[case]
    root = cifar_10(tmp_path)
    write(root / "test_batch", content)
    with pytest.raises(ValueError, match=message) as error:
        read(root, "test")
    assert len(str(error.value)) < 500


def test_no_pickle_runs_anything(tmp_path):
    class Payload:
        def __reduce__(self):
            return (write, (tmp_path / "owned", "x"))

    root = cifar_10(tmp_path / "set")
    for protocol in range(5):
        write(root / "test_batch", pickle.dumps({"data": Payload()}, protocol=protocol))
        with pytest.raises(ValueError, match="it was not run"):
            read(root, "test")
    assert not (tmp_path / "owned").exists()


XML = {
    "a long name": "<annotation><object><name>" + "A" * 4_000_000 + "</name></object></annotation>",
    "depth": "<annotation>" + "<a>" * 300_000 + "</a>" * 300_000 + "</annotation>",
    "attributes": "<annotation " + " ".join(f'a{i}="x"' for i in range(100_000)) + "/>",
    "sides of many digits": f"<annotation><size><width>{'9' * 5000}</width><height>1e9</height></size></annotation>",
    "entities": '<!DOCTYPE a [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;">]><annotation>&b;</annotation>',
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
    with pytest.raises(ValueError, match=r"the mask holds the colour \(9, 9, 9\), which is not a label"):
        read(root, "all")[0]


def test_messages_name_some_splits_of_many(tmp_path):
    root = box_files.voc(tmp_path)
    for i in range(3000):
        write(root / f"ImageSets/Main/part{i:04}.txt", "a\n")
    with pytest.raises(ValueError, match=facts("2982")) as error:
        read(root, "nothing")
    assert len(str(error.value)) < 1000
