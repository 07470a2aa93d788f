"""Images in folders of their classes: plain ones, PACS, CUB, Tiny ImageNet and ImageNet, sound and broken."""

import shutil

import pytest

from calibrant.data import layouts, read, recognise
from calibrant.data.readers._folder import HIDDEN, MISSING, NAME_OUT, NO_LABEL, TWICE, UNREADABLE
from calibrant.data.readers.image_folder import DOMAINS, PACS, image_folder, pacs
from tests.helpers import box_files as files
from tests.helpers.box_files import image, odd, skipped, write, xml
from tests.helpers.errors import facts
from tests.helpers.reader_data import (
    INVERTED,
    MODES,
    NO_ANNOTATION,
    NO_NUMBERS,
    corners,
    odd_in,
    picture,
    skipped_in,
    truncated,
    where,
)


@pytest.mark.parametrize(
    "names",
    [
        ("train2017", "val2017", "annotations"),
        ("Train2014", "cat", "dog"),
        ("images", "masks"),
        ("Images", "labels"),
        ("JPEGImages", "SegmentationClass"),
        ("train", "train_labels", "val"),
        ("testing", "trainannot"),
        ("frames", "frames_masks"),
        ("701_StillsRaw_full", "LabeledApproved_full"),
        ("train", "test"),
        ("only",),
    ],
)
def test_parts_of_other_layouts_are_no_classes(tmp_path, names):
    for name in names:
        image(tmp_path / name / "1.png")
    assert layouts()["image-folder"].splits(tmp_path) == ()
    (tmp_path / "train" / "inner").mkdir(parents=True, exist_ok=True)
    assert layouts()["image-folder"].splits(tmp_path) == ()


def test_classes_that_are_called_nearly_so(tmp_path):
    for name in ("train", "bus", "mask", "no_mask", "label"):  # a train is a class here
        image(tmp_path / "set" / name / "1.png")
    assert read(tmp_path / "set").classes == ("bus", "label", "mask", "no_mask", "train")


@pytest.mark.parametrize("place", ["", "Train val splits and h5py files pre-read"])
def test_pacs_lists(tmp_path, place):
    for domain in DOMAINS:
        for name in PACS:
            image(tmp_path / domain / name / "1.jpg")
    image(tmp_path / "photo/dog/2.jpg")
    lines = "kfold/photo/person/1.jpg 7\nphoto/dog/2.jpg 1\n\nphoto/dog/1.jpg 1\n"
    write(tmp_path / place / "photo_train_kfold.txt", lines)
    assert layouts()["pacs"].splits(tmp_path) == (*DOMAINS, "all", "photo-train")
    data = pacs(tmp_path, "photo-train")
    assert data.ids == ("photo/person/1.jpg", "photo/dog/2.jpg", "photo/dog/1.jpg")
    assert (data.labels.tolist(), data.groups) == ([6, 0, 0], ("photo",) * 3)
    whole = pacs(tmp_path, "all")
    assert len(whole) == 29
    assert list(dict.fromkeys(whole.groups)) == list(DOMAINS)
    assert pacs(tmp_path, "sketch").labels.tolist() == list(range(7))
    for line, what in (
        ("photo/dog/1.jpg 2", "label in the list that is not its folder's"),
        ("photo/dog/1.jpg", "line that names no image of the domain"),
        ("sketch/dog/1.jpg 1", "line that names no image of the domain"),
        ("photo/dog/9.jpg 1", MISSING),
        ("photo/dog/.. 1", NAME_OUT),
        ("photo/dog/2.jpg 1", TWICE),
    ):
        write(tmp_path / place / "photo_train_kfold.txt", f"photo/dog/2.jpg 1\n{line}\n")
        with pytest.raises(ValueError, match=what):
            pacs(tmp_path, "photo-train")
        data = pacs(tmp_path, "photo-train", on_error="skip")
        assert (data.ids, skipped(data.report), odd(data.report)) == (("photo/dog/2.jpg",), {what: 1}, {})


@pytest.fixture
def folder(tmp_path):
    for name in ("train/cat/b.jpg", "train/cat/deep/a.PNG", "train/ant/1.png", "val/cat/x.jpg", "val/dog/y.jpg"):
        picture(tmp_path / name)
    (tmp_path / "train" / "cat" / "notes.txt").write_text("no image")
    (tmp_path / "train" / "bee").mkdir()
    (tmp_path / "train" / ".ipynb_checkpoints").mkdir()
    picture(tmp_path / "test" / "unlabelled.jpg")
    return tmp_path


def test_classes_are_those_of_all_splits_in_the_order_of_the_alphabet(folder):
    assert recognise(folder)[0].splits(folder) == ("train", "val")
    train, val = read(folder, "train"), read(folder, "val")
    assert train.classes == val.classes == ("ant", "bee", "cat", "dog")
    assert train.ids == ("train/ant/1.png", "train/cat/b.jpg", "train/cat/deep/a.PNG")
    assert train.labels.tolist() == [0, 2, 2]
    assert val.ids == ("val/cat/x.jpg", "val/dog/y.jpg")
    assert val.labels.tolist() == [2, 3]
    assert odd_in(train) == {
        "class folder that only other splits have": (1, ("train/dog",)),
        "class folder without images": (1, ("train/bee",)),
    }
    assert train[1].input.size == (5, 4)


def test_without_splits_the_labels_are_those_of_torchvision(tmp_path):
    from calibrant.base.torchvision_operators import ensure

    ensure()
    from torchvision.datasets import ImageFolder

    for name in ("zebra/1.png", "Ape/1.png", "ape/2.png", "ape/10.png", "zebra/0/3.png"):
        picture(tmp_path / name)
    data, theirs = read(tmp_path), ImageFolder(str(tmp_path))
    assert data.split == "all"
    assert list(data.classes) == theirs.classes
    assert {str(tmp_path / i): k for i, k in zip(data.ids, data.labels.tolist(), strict=True)} == dict(theirs.samples)


def test_broken_images_are_errors_when_read_or_skipped_at_once(tmp_path):
    picture(tmp_path / "a" / "1.jpg")
    truncated(tmp_path / "a" / "2.jpg")
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "3.png").write_bytes(b"")
    (tmp_path / "b" / "4.jpg").write_text("no image")
    picture(tmp_path / "b" / "5.png")
    (tmp_path / "b" / "._5.png").write_bytes(b"\0\5\x16\7")
    data = image_folder(tmp_path, "all")
    assert data.ids == ("a/1.jpg", "a/2.jpg", "b/3.png", "b/4.jpg", "b/5.png")
    for i, name in ((1, "2.jpg"), (2, "3.png"), (3, "4.jpg")):
        with pytest.raises(ValueError, match=name):
            data[i]
    data = image_folder(tmp_path, "all", on_error="skip")
    assert data.ids == ("a/1.jpg", "b/5.png")
    assert data.labels.tolist() == [0, 1]
    (times, places) = skipped_in(data)[UNREADABLE]
    assert times == 3
    assert [place.partition(" (")[0] for place in places] == ["a/2.jpg", "b/3.png", "b/4.jpg"]
    assert skipped_in(data)[HIDDEN] == (1, ("b/._5.png",))


@MODES
def test_cub(tmp_path, mode):
    root = files.cub(tmp_path)
    data = read(root, "test", on_error=mode)
    assert data.classes == ("Black Bird", "Red Bird")
    assert data.ids == ("images/001.Black_Bird/a.jpg", "images/002.Red_Bird/c.jpg")
    assert data.labels.tolist() == [0, 1]
    assert data.boxes.corners.tolist() == [[2, 1, 7.5, 5], [18, 0, 23, 5]]
    assert odd(data.report) == ({"box that leaves the image": 1} if mode == "skip" else {})  # the size is in no file
    assert read(root, "train", on_error=mode).ids == ("images/002.Red_Bird/b.jpg",)


@pytest.mark.parametrize(
    ("file", "content", "what"),
    [
        ("train_test_split.txt", "1 0\n2 1\n3 yes\n", "image of no split"),
        ("image_class_labels.txt", "1 1\n2 2\n3 7\n", "image without a class that classes.txt lists"),
        ("bounding_boxes.txt", "1 2 1 5.5 4\n2 0 0 20 10\n3 18 0 -5 5\n", INVERTED),
        ("images.txt", "1 001.Black_Bird/a.jpg\n2 002.Red_Bird/b.jpg\n3 002.Red_Bird/d.jpg\n", MISSING),
    ],
)
def test_broken_lines_of_cub(tmp_path, file, content, what):
    root = files.cub(tmp_path)
    write(root / file, content)
    with pytest.raises(ValueError, match=facts(what, "images/002.Red_Bird/")):
        read(root, "test")
    data = read(root, "test", on_error="skip")
    others = {NO_ANNOTATION: 1} if file == "images.txt" else {}  # c.jpg, now that d.jpg has its line
    assert (data.ids, skipped(data.report)) == (("images/001.Black_Bird/a.jpg",), {what: 1} | others)


def test_tables_of_cub_that_are_not_tables(tmp_path):
    root = files.cub(tmp_path)
    write(root / "bounding_boxes.txt", "1 2 1 5.5 4\n2 0 0 20 10\n3\n")
    with pytest.raises(ValueError, match=facts("bounding_boxes.txt", "3")):
        read(root, "test")
    data = read(root, "test", on_error="skip")
    assert data.ids == ("images/001.Black_Bird/a.jpg",)
    assert list(skipped(data.report).values()) == [1, 1]  # the line, and the image that has no box now
    write(root / "classes.txt", "1 001.Black_Bird\n1 002.Red_Bird\n")
    with pytest.raises(ValueError, match=facts("classes.txt", "2")):
        read(root, "test", on_error="skip")


def test_cub_images_that_no_line_lists(tmp_path):
    root = files.cub(tmp_path)
    image(root / "images/002.Red_Bird/u.jpg")
    for split in ("train", "test"):
        assert where(read(root, split).report.skipped) == {NO_ANNOTATION: ("images/002.Red_Bird/u.jpg",)}


@MODES
def test_tiny_imagenet(tmp_path, mode):
    root = files.tiny_imagenet(tmp_path)
    data = read(root, "train", on_error=mode)
    assert data.classes == ("bee", "crane (n01)", "crane (n03)")
    assert data.ids == tuple(f"train/{n[:3]}/images/{n}.JPEG" for n in ("n02_0", "n01_0", "n01_1", "n03_0"))
    assert data.labels.tolist() == [0, 1, 1, 2] == data.boxes.labels.tolist()
    assert data.boxes.corners.tolist() == [[1, 2, 3, 4], [0, 10, 63, 58], [5, 5, 5, 9], [0, 0, 62, 62]]
    assert (skipped(data.report), odd(data.report)) == ({}, {"box without area": 1})
    assert data[2].input.mode == "RGB"  # stored as grey
    data = read(root, "val", on_error=mode, names="wnid")
    assert data.classes == ("n02", "n01", "n03")
    assert data.ids == ("val/images/val_3.JPEG", "val/images/val_0.JPEG")
    assert data.labels.tolist() == [2, 0]
    assert data.boxes.corners.tolist() == [[0, 32, 44, 62], [4, 0, 60, 55]]
    with pytest.raises(ValueError, match=facts("test")):
        read(root, "test")


def test_tiny_imagenet_with_gaps(tmp_path):
    root = files.tiny_imagenet(tmp_path)
    write(root / "train/n01/n01_boxes.txt", "n01_0.JPEG\t0\t10\t63\t58\nn01_9.JPEG\t1\t1\t2\t2\n")
    image(root / "train/n77/images/n77_0.JPEG")
    image(root / "train/n01/images/._n01_0.JPEG")
    shutil.rmtree(root / "train/n03")
    write(root / "val/val_annotations.txt", "val_3.JPEG\tn55\t0\t32\t44\t62\nval_3.JPEG\tn01\t0\t32\t44\t62\n")
    with pytest.raises(ValueError, match=facts("n01_9", "JPEG")):
        read(root, "train")
    data = read(root, "train", on_error="skip")
    assert data.ids[1:] == ("train/n01/images/n01_0.JPEG", "train/n01/images/n01_1.JPEG")
    assert data.boxes.counts.tolist() == [1, 1, 0]
    assert odd(data.report) == {"image without a box": 1}
    assert skipped(data.report) == {
        "folder of a class that wnids.txt does not list": 1,
        HIDDEN: 1,
        MISSING: 1,
        "class without its folder of images or its file of boxes": 1,
    }
    with pytest.raises(ValueError, match=facts("val_3", "JPEG", "wnids.txt")):
        read(root, "val")
    with pytest.raises(ValueError, match=facts("val")):
        read(root, "val", on_error="skip")


def imagenet(root):
    for name in ("train/n00000002/n00000002_1", "train/n00000002/n00000002_2", "train/n00000001/n00000001_5"):
        image(root / f"{name}.JPEG")
    annotations = root / "Annotations/CLS-LOC/train"
    objects = [("n00000002", 1, 1, 3, 3), ("n00000001", 0, 0, 9, 9), ("n00000009", 4, 4, 6, 6)]
    write(annotations / "n00000002/n00000002_2.xml", xml(objects, "n00000002_2"))
    write(annotations / "n00000001/n00000001_5.xml", xml([("n00000001", 2, 2, 8, 8)], size=(0, 0)))
    write(root / "LOC_synset_mapping.txt", "n00000001 tench, Tinca tinca\nn00000002 goldfish\n")
    return root


@MODES
def test_imagenet(tmp_path, mode):
    root = imagenet(tmp_path)
    data = read(root, "train", on_error=mode, only_annotated=False)
    assert recognise(root)[0].name == "imagenet"
    assert data.classes == ("tench", "goldfish")
    assert data.ids == tuple(f"train/{n[:9]}/{n}.JPEG" for n in ("n00000001_5", "n00000002_1", "n00000002_2"))
    assert data.labels.tolist() == [0, 1, 1]  # the folder's class, though a box of the other is larger
    assert data.boxes.counts.tolist() == [1, 0, 3]
    assert data.boxes.labels.tolist() == [0, 1, 0, -1]
    assert corners(data, 2) == [[1, 1, 3, 3], [0, 0, 9, 9], [4, 4, 6, 6]]
    assert odd(data.report) == {
        "size in the annotation that is not the image's": 1,
        "image without a box": 1,
        "box of a class that the folder does not have": 1,
    }
    for only in (True, None):  # as soon as there are annotations, images without one are left out
        data = read(root, "train", on_error=mode, only_annotated=only)
        assert data.boxes.counts.tolist() == [1, 3]
        assert skipped(data.report) == {NO_ANNOTATION: 1}


def test_imagenet_annotations_elsewhere_and_none(tmp_path):
    root = imagenet(tmp_path / "data")
    shutil.move(root / "Annotations", tmp_path / "boxes")
    data = read(root, "train")
    assert data.boxes is None
    assert str(data.report) == "nothing skipped, nothing odd"
    assert read(root, "train", annotations=tmp_path / "boxes").boxes.counts.tolist() == [1, 3]
    with pytest.raises(ValueError, match=facts("data", "annotat")):
        read(root, "train", only_annotated=True)
    with pytest.raises(ValueError, match=facts("nowhere")):
        read(root, "train", annotations=tmp_path / "nowhere")


def test_imagenet_as_kaggle_packs_it(tmp_path):
    val = tmp_path / "ILSVRC/Data/CLS-LOC/val"
    image(val / "ILSVRC2012_val_00000001.JPEG")
    image(val / "ILSVRC2012_val_00000002.JPEG")
    image(tmp_path / "ILSVRC/Data/CLS-LOC/train/n00000003/n00000003_1.JPEG")
    lines = "ImageId,PredictionString\nILSVRC2012_val_00000001,n00000005 1 2 3 4 n00000005 5 5 7 9 \n"
    write(tmp_path / "LOC_val_solution.csv", lines)
    with pytest.raises(ValueError, match=facts("val_00000002", "JPEG")):
        read(tmp_path, "val")
    data = read(tmp_path, "val", on_error="skip")
    assert data.ids == ("ILSVRC/Data/CLS-LOC/val/ILSVRC2012_val_00000001.JPEG",)
    assert (data.classes, data.labels.tolist()) == (("n00000003", "n00000005"), [1])
    assert data.boxes.corners.tolist() == [[1, 2, 3, 4], [5, 5, 7, 9]]
    train = read(tmp_path, "train")
    assert (train.classes, train.labels.tolist(), train.boxes) == (data.classes, [0], None)


@pytest.mark.parametrize("line", ["1 1 2", "9 1 3 4", "a b c d", "1 1 2 2 2", "nan 0 1 1"])
def test_broken_lines_of_boxes(tmp_path, line):
    what = INVERTED if line.startswith("9") else NO_NUMBERS
    root = files.tiny_imagenet(tmp_path)
    write(root / "val/val_annotations.txt", f"val_3.JPEG n01 {line}\nval_0.JPEG n02 1 1 2 2\n")
    with pytest.raises(ValueError, match=facts("val/images/val_3.JPEG", what, "val_annotations.txt")):
        read(root, "val")
    data = read(root, "val", on_error="skip")
    assert (data.ids, skipped(data.report)) == (("val/images/val_0.JPEG",), {what: 1})


def test_a_file_of_boxes_of_tiny_imagenet_that_is_a_link(tmp_path):
    root = files.tiny_imagenet(tmp_path / "data")
    (root / "train/n01/n01_boxes.txt").rename(tmp_path / "secret")
    (root / "train/n01/n01_boxes.txt").symlink_to(tmp_path / "secret")
    data = read(root, "train", on_error="skip")
    assert data.labels.tolist() == [0, 2]
    assert skipped(data.report) == {"file of boxes that cannot be read": 1}


def kit(root, lines, mapping="n00000009 1 kit_fox\nn00000003 2 tench\n"):
    for i in (1, 2, 3):
        image(root / f"val/ILSVRC2012_val_{i:08d}.JPEG")
    write(root / "data/ILSVRC2012_validation_ground_truth.txt", lines)
    if mapping:
        write(root / "data/map_clsloc.txt", mapping)
    return root


def test_imagenet_with_the_development_kit(tmp_path):
    root = kit(tmp_path / "a", "2\n1\n2\n")
    data = read(root, "val")
    assert (data.classes, data.labels.tolist(), data.boxes) == (("n00000003", "n00000009"), [0, 1, 0], None)
    write(root / "Annotations/val/ILSVRC2012_val_00000002.xml", xml([("n00000009", 1, 1, 3, 3)]))
    data = read(root, "val")
    assert (data.ids, data.labels.tolist()) == (("val/ILSVRC2012_val_00000002.JPEG",), [1])
    assert skipped(data.report) == {NO_ANNOTATION: 2}
    data = read(kit(tmp_path / "b", "2\n1\n"), "val", on_error="skip")
    assert skipped(data.report) == {NO_LABEL: 1}
    with pytest.raises(ValueError, match=facts("ground_truth.txt", "2", "'7'")):
        read(kit(tmp_path / "c", "2\n7\n1\n"), "val")
    with pytest.raises(ValueError, match=facts("ground_truth.txt", "map_clsloc.txt")):
        read(kit(tmp_path / "d", "2\n1\n1\n", mapping=""), "val")
    image(tmp_path / "d/train/n00000003/1.JPEG")
    assert read(tmp_path / "d", "train").classes == ("n00000003",)  # the labels of val are not needed
    image(tmp_path / "d/val/n00000003/1.JPEG")
    for i in (1, 2, 3):
        (tmp_path / f"d/val/ILSVRC2012_val_{i:08d}.JPEG").unlink()
    assert read(tmp_path / "d", "val").labels.tolist() == [0]  # nor here
