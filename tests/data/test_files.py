"""Files that are none, lead out, are too large or lie about it: refused in a sentence, in time and memory."""

import json
import os
import socket
import struct
import sys
import time
import zlib

import numpy as np
import pytest
from PIL import Image

from calibrant.data import ImageFiles, Vocabulary, files, read, read_glove, recognise
from calibrant.data.files import MAX_IMAGE, MAX_TEXT, UnreadableError, files_below, read_bytes, read_json
from calibrant.data.inspection import inspect
from calibrant.data.readers import segmentation
from calibrant.data.readers._boxes import MAX_BOXES
from calibrant.data.readers._folder import HIDDEN
from calibrant.data.readers.segmentation import CAMVID
from tests.helpers import box_files
from tests.helpers.box_files import image, odd, skipped, write, xml
from tests.helpers.data_trees import TREES, files_of, image_folder, imagenet, own, published_camvid
from tests.helpers.errors import facts
from tests.helpers.reader_data import NOWHERE, OUT


def a_socket(path):
    here = os.getcwd()
    os.chdir(path.parent)  # an address has 107 characters at most
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(path.name)
    finally:
        os.chdir(here)


KINDS = {
    "named pipe": os.mkfifo,
    "device": lambda path: path.symlink_to("/dev/zero"),
    "folder": lambda path: path.mkdir(),
    "socket": a_socket,
}


@pytest.mark.parametrize("kind", KINDS)
def test_only_files_are_read(tmp_path, kind):
    path = tmp_path / "x.jpg"
    KINDS[kind](path)
    for look in (
        lambda: read_bytes(path),
        lambda: ImageFiles(tmp_path, ("x.jpg",))[0],
        lambda: read_glove(path, Vocabulary.build(["a"]), 2),
    ):
        with pytest.raises(UnreadableError, match=facts("x.jpg", kind)):
            look()
    KINDS[kind](tmp_path / "a.npz")
    for layout in (None, "arrays") if kind != "folder" else ():
        with pytest.raises(ValueError, match=facts("a.npz", kind)):
            recognise(tmp_path / "a.npz", layout)


def sparse(path):
    """A file of zeros that claims three gigabytes."""
    path.write_bytes(b"")
    os.truncate(path, 3_000_000_000)


@pytest.mark.parametrize("instead", [os.mkfifo, sparse], ids=["pipe", "sparse"])
@pytest.mark.parametrize("case", TREES)
def test_no_pipe_is_waited_for_and_no_claim_believed(tmp_path, case, instead):
    make, layout, split, options = TREES[case]
    root = make(tmp_path / "set")
    for path in files_of(root):
        content = path.read_bytes()
        path.unlink()
        instead(path)
        try:
            data = read(root, split, layout=layout, on_error="skip", **options)
        except ValueError as error:
            said = str(error)
        else:
            said = ""
            assert str(path) not in {data.inputs.where(i) for i in range(len(data))}
        assert "\n" not in said
        path.unlink()
        path.write_bytes(content)


def test_pipes_among_images_are_skipped_and_counted(tmp_path):
    root = image_folder(tmp_path / "set")
    os.mkfifo(root / "train/cat/pipe.png")
    with pytest.raises(ValueError, match=facts("train/cat/pipe.png")):
        read(root, "train")
    data = read(root, "train", on_error="skip")
    assert [(f.what, f.where) for f in data.report.skipped] == [(files.NO_FILE, ("train/cat/pipe.png",))]
    assert list(files_below(root / "train/dog"))[:1] == ["0.jpg"]


def test_limits_are_said(tmp_path):
    path = write(tmp_path / "x.txt", "")
    os.truncate(path, MAX_TEXT + 1)
    with pytest.raises(UnreadableError, match=facts(str(MAX_TEXT + 1), str(MAX_TEXT))):
        read_bytes(path)
    (tmp_path / "x.webp").write_bytes(b"RIFF\xff\xff\xff\x7fWEBPVP8 ")
    os.truncate(tmp_path / "x.webp", MAX_IMAGE + 1)
    with pytest.raises(UnreadableError, match=facts(str(MAX_IMAGE))):
        ImageFiles(tmp_path, ("x.webp",)).header(0)


def png(width, height):
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", zlib.compress(bytes(100))) + chunk(b"IEND", b"")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("x.png", png(100_000, 100_000), facts("x.png")),
        ("x.png", png(2**31 - 1, 1), facts("x.png")),
        ("x.png", png(0, 5), facts("x.png")),
        ("x.png", png(9_000, 10_000), facts("9000", "10000", "89478485")),
        ("x.ppm", b"P6 9000 10000 255 ", facts("9000", "10000")),
        ("x.ppm", b"P6 #" + b"a" * 3_000_000, facts("x.ppm")),
        ("x.ppm", b"P3" + b" " * 3_000_000, facts("x.ppm")),
        ("x.ppm", b"P6 " + b"9" * 5000 + b" 1 255 ", facts("x.ppm")),
        ("x.jpg", b"not an image", facts("x.jpg")),
        ("x.eps", b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 5 5\n", facts("x.eps")),
    ],
    ids=range(10),
)
def test_images_that_lie(tmp_path, name, content, message):
    write(tmp_path / name, content)
    with pytest.raises(UnreadableError, match=message):
        ImageFiles(tmp_path, (name,))[0]


def test_images_that_claim_more_than_the_memory(tmp_path, monkeypatch):
    def short_of_memory(*words, **options):
        raise MemoryError

    write(tmp_path / "x.png", png(5, 6))
    monkeypatch.setattr(Image, "open", short_of_memory)
    with pytest.raises(UnreadableError, match=facts("x.png", "memory")):
        ImageFiles(tmp_path, ("x.png",))[0]


def test_comments_in_headers_are_read(tmp_path):
    write(tmp_path / "x.ppm", b"P6 # made by\n# nobody\n2 #\n1 255\n" + bytes(range(6)))
    assert np.asarray(ImageFiles(tmp_path, ("x.ppm",))[0]).tolist() == [[[0, 1, 2], [3, 4, 5]]]


def test_folders_that_may_not_be_looked_into(tmp_path, monkeypatch):
    """A file system's lost+found beside the data must not be in the way."""
    root = image_folder(tmp_path / "set")
    (root / "lost+found").mkdir()
    scandir = os.scandir

    def refusing(path="."):
        if str(path).endswith("lost+found"):
            raise PermissionError(13, "Permission denied", str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refusing)
    assert recognise(root)[0].name == "image-folder"


def test_json_with_a_key_twice(tmp_path):
    path = write(tmp_path / "a.json", '{"x": [{"box": 1, "id": 2, "box": 3}]}')
    with pytest.raises(UnreadableError, match=facts("a.json", "box")):
        read_json(path)
    assert read_json(write(path, '{"x": [{"box": 1, "id": 2}]}'), drop="box") == {"x": [{"id": 2}]}


MAKE = {
    "voc": ("JPEGImages", "train"),
    "coco": ("val2017", "val2017"),
    "tiny_imagenet": ("val/images", "val"),
    "cub": ("images", "test"),
    "open_images": ("train", "train"),
}


def two_classes(root):
    for name in ("a/1.jpg", "b/2.jpg"):
        image(root / name)
    return root


@pytest.mark.parametrize("what", [OUT, NOWHERE])
@pytest.mark.parametrize("reader", MAKE)
def test_links_that_lead_out_or_nowhere(tmp_path, reader, what):
    outside = image(tmp_path / "secret.jpg")
    root = getattr(box_files, reader)(tmp_path / "data")
    folder, split = MAKE[reader]
    whole = read(root, split, on_error="skip")
    os.symlink(outside if what == OUT else tmp_path / "gone.jpg", root / folder / "link.jpg")
    with pytest.raises(ValueError, match=facts(f"{folder}/link.jpg")):
        read(root, split)
    data = read(root, split, on_error="skip")
    assert data.ids == whole.ids
    assert skipped(data.report) == skipped(whole.report) | {what: 1}


def test_an_annotated_link_is_reported_once(tmp_path):
    root = box_files.coco(tmp_path / "data")
    (root / "val2017/y.jpg").unlink()
    (root / "val2017/y.jpg").symlink_to(image(tmp_path / "secret.jpg"))
    data = read(root, on_error="skip")
    assert (data.ids, skipped(data.report)) == (("val2017/x.jpg", "val2017/z.jpg"), {OUT: 1})


def test_links_inside_the_data_folder_work(tmp_path):
    root = box_files.coco(tmp_path / "data")
    (root / "store").mkdir()
    (root / "val2017/y.jpg").rename(root / "store/1.jpg")
    (root / "val2017/y.jpg").symlink_to("../store/1.jpg")
    assert read(root).ids == ("val2017/x.jpg", "val2017/y.jpg", "val2017/z.jpg")
    (tmp_path / "entry").symlink_to(root)  # the data folder itself may be a link
    data = read(tmp_path / "entry")
    assert (data.name, data.ids, data[1].input.size) == ("entry", read(root).ids, (20, 10))


def test_class_folders_that_are_links(tmp_path):
    root = two_classes(tmp_path / "data")
    image(tmp_path / "elsewhere/3.jpg")
    image(root / "b/.store/4.jpg")
    (root / "c").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ValueError, match=r"^c: "):
        read(root)
    data = read(root, on_error="skip")
    assert data.ids == ("a/1.jpg", "b/2.jpg")
    assert skipped(data.report) == {HIDDEN: 1, OUT: 1}
    assert odd(data.report) == {"class folder without images": 1}
    (root / "c").unlink()
    (root / "c").symlink_to("b/.store")
    assert read(root).ids == ("a/1.jpg", "b/2.jpg", "c/4.jpg")


def test_links_in_a_circle_end(tmp_path):
    root = two_classes(tmp_path / "data")
    image(root / "other/3.jpg")
    (root / "a/up").symlink_to("..")
    (root / "a/self").symlink_to("self")
    (root / "a/here").symlink_to(".")
    (root / "a/other").symlink_to("../other")
    (root / "other/back").symlink_to("../a")
    (root / "other/again").symlink_to("../other")
    trouble = []
    assert list(files_below(root / "a", home=root, on_problem=lambda *t: trouble.append(t))) == ["1.jpg", "other/3.jpg"]
    assert trouble == [("a/self", NOWHERE)]


@pytest.mark.parametrize("name", ["loop", "loop.jpg"])
def test_a_link_to_itself_hinders_nobody(tmp_path, name):
    root = two_classes(tmp_path / "data")
    (root / name).symlink_to(name)
    assert read(root).ids == ("a/1.jpg", "b/2.jpg")
    root = flat_imagenet(tmp_path / "imagenet")
    (root / "val/loop.JPEG").symlink_to("loop.JPEG")
    data = read(root, "val", on_error="skip")
    assert (data.ids, skipped(data.report)) == (("val/ILSVRC2012_val_00000001.JPEG",), {NOWHERE: 1, HIDDEN: 1})


def flat_imagenet(root):
    image(root / "val/ILSVRC2012_val_00000001.JPEG")
    image(root / "val/._ILSVRC2012_val_00000001.JPEG")
    write(root / "LOC_val_solution.csv", "ImageId,PredictionString\nILSVRC2012_val_00000001,n00000005 1 2 3 4\n")
    return root


def test_a_file_that_nobody_asks_for_may_be_any_link(tmp_path):
    root = two_classes(tmp_path / "data")
    write(tmp_path / "README.txt", "x")
    (root / "a/README.txt").symlink_to(tmp_path / "README.txt")
    assert read(root).ids == ("a/1.jpg", "b/2.jpg")


def test_folders_in_folders_without_end(tmp_path, monkeypatch):
    root = two_classes(tmp_path / "data")
    monkeypatch.chdir(root / "a")
    depth = sys.getrecursionlimit()
    for _ in range(depth):
        os.mkdir("d")
        os.chdir("d")
    try:
        with pytest.raises(ValueError, match=facts("64")):
            read(root)
        data = read(root, on_error="skip")
        assert (data.ids, list(skipped(data.report).values())) == (("a/1.jpg", "b/2.jpg"), [1])
    finally:  # pytest's clean-up recurses, and would not come to the end of it
        for _ in range(depth):
            os.chdir("..")
            os.rmdir("d")


@pytest.mark.parametrize(
    ("reader", "file"),
    [
        ("coco", "annotations/instances_val2017.json"),
        ("cub", "images.txt"),
        ("tiny_imagenet", "val/val_annotations.txt"),
        ("tiny_imagenet", "words.txt"),
        ("open_images", "oidv6-train-annotations-bbox.csv"),
        ("voc", "ImageSets/Main/train.txt"),
    ],
)
def test_annotation_files_that_are_links(tmp_path, reader, file):
    root = getattr(box_files, reader)(tmp_path / "data")
    split = MAKE[reader][1]
    ids = read(root, split).ids
    (root / file).rename(root / "kept")
    (root / file).symlink_to(root / "kept")
    assert read(root, split).ids == ids
    (root / "kept").rename(tmp_path / "secret")
    (root / file).unlink()
    (root / file).symlink_to(tmp_path / "secret")
    with pytest.raises(ValueError, match=facts(file.rpartition("/")[2])):
        read(root, split, on_error="skip")


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


@pytest.mark.slow
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


XML = {
    "a long name": "<annotation><object><name>" + "A" * 4_000_000 + "</name></object></annotation>",
    "depth": "<annotation>" + "<a>" * 300_000 + "</a>" * 300_000 + "</annotation>",
    "depth without end": "<a>" * 200_000,
    "attributes": "<annotation " + " ".join(f'a{i}="x"' for i in range(100_000)) + "/>",
    "sides of many digits": f"<annotation><size><width>{'9' * 5000}</width><height>1e9</height></size></annotation>",
    "many objects": xml([("bed", 1, 1, 2, 2)] * 20_000, "a.jpg"),
}


@pytest.mark.slow
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
