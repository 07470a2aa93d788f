"""Readers of sets with boxes: labels, boxes, ids and counts, by hand, on tiny sets in the official layouts."""

import shutil

import numpy as np
import pytest

from calibrant.data import read, recognise
from calibrant.data.files import UnreadableError
from calibrant.data.readers._annotations import number
from calibrant.data.readers._folder import check_image
from tests import box_files as files
from tests.box_files import cut, image, odd, skipped, write, xml

# fmt: off
VOC = (
    "aeroplane", "bicycle", "bird", "boat", "bottle", "bus", "car", "cat", "chair", "cow", "diningtable", "dog",
    "horse", "motorbike", "person", "pottedplant", "sheep", "sofa", "train", "tvmonitor",
)
# fmt: on
MODES = pytest.mark.parametrize("mode", ["raise", "skip"])


def corners(data, index):
    return data.boxes[index].tolist()


def test_each_layout_is_recognised_also_from_above(tmp_path):
    made = {
        "tiny-imagenet": files.tiny_imagenet,
        "voc": files.voc,
        "coco": files.coco,
        "open-images": files.open_images,
        "cub": files.cub,
    }
    for name, make in made.items():
        root = make(tmp_path / name / "top")
        kind, where = recognise(tmp_path / name)
        assert (kind.name, where) == (name, root)


@pytest.mark.parametrize("name", ["tiny-imagenet", "imagenet", "voc", "coco", "open-images", "cub"])
def test_other_folders_and_files_have_no_splits(tmp_path, name):
    (tmp_path / "empty").mkdir()
    file = write(tmp_path / "file.txt", "x")
    for path in (tmp_path / "empty", file):
        with pytest.raises(ValueError, match="not a data set in the layout"):
            read(path, "train", layout=name)
    with pytest.raises(ValueError, match=r"nothing: no such file or folder"):
        read(tmp_path / "nothing", "train", layout=name)


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
    with pytest.raises(ValueError, match="split 'test' was asked for"):
        read(root, "test")


def test_tiny_imagenet_with_gaps(tmp_path):
    root = files.tiny_imagenet(tmp_path)
    write(root / "train/n01/n01_boxes.txt", "n01_0.JPEG\t0\t10\t63\t58\nn01_9.JPEG\t1\t1\t2\t2\n")
    image(root / "train/n77/images/n77_0.JPEG")
    image(root / "train/n01/images/._n01_0.JPEG")
    shutil.rmtree(root / "train/n03")
    write(root / "val/val_annotations.txt", "val_3.JPEG\tn55\t0\t32\t44\t62\nval_3.JPEG\tn01\t0\t32\t44\t62\n")
    with pytest.raises(ValueError, match=r"n01_9\.JPEG: image that is missing"):
        read(root, "train")
    data = read(root, "train", on_error="skip")
    assert data.ids[1:] == ("train/n01/images/n01_0.JPEG", "train/n01/images/n01_1.JPEG")
    assert data.boxes.counts.tolist() == [1, 1, 0]
    assert odd(data.report) == {"image without a box": 1}
    assert skipped(data.report) == {
        "folder of a class that wnids.txt does not list": 1,
        "hidden file": 1,
        "image that is missing": 1,
        "class without its folder of images or its file of boxes": 1,
    }
    with pytest.raises(ValueError, match=r"val_3.JPEG: image without one class that wnids.txt lists .*n55, n01"):
        read(root, "val")
    with pytest.raises(ValueError, match="no image that can be used"):
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
        assert skipped(data.report) == {"image without an annotation": 1}


def test_imagenet_annotations_elsewhere_and_none(tmp_path):
    root = imagenet(tmp_path / "data")
    shutil.move(root / "Annotations", tmp_path / "boxes")
    data = read(root, "train")
    assert data.boxes is None
    assert str(data.report) == "nothing skipped, nothing odd"
    assert read(root, "train", annotations=tmp_path / "boxes").boxes.counts.tolist() == [1, 3]
    with pytest.raises(ValueError, match="no annotation was found"):
        read(root, "train", only_annotated=True)
    with pytest.raises(ValueError, match="is not a folder"):
        read(root, "train", annotations=tmp_path / "nowhere")


def test_imagenet_as_kaggle_packs_it(tmp_path):
    val = tmp_path / "ILSVRC/Data/CLS-LOC/val"
    image(val / "ILSVRC2012_val_00000001.JPEG")
    image(val / "ILSVRC2012_val_00000002.JPEG")
    image(tmp_path / "ILSVRC/Data/CLS-LOC/train/n00000003/n00000003_1.JPEG")
    lines = "ImageId,PredictionString\nILSVRC2012_val_00000001,n00000005 1 2 3 4 n00000005 5 5 7 9 \n"
    write(tmp_path / "LOC_val_solution.csv", lines)
    with pytest.raises(ValueError, match=r"val_00000002.JPEG: image without a label"):
        read(tmp_path, "val")
    data = read(tmp_path, "val", on_error="skip")
    assert data.ids == ("ILSVRC/Data/CLS-LOC/val/ILSVRC2012_val_00000001.JPEG",)
    assert (data.classes, data.labels.tolist()) == (("n00000003", "n00000005"), [1])
    assert data.boxes.corners.tolist() == [[1, 2, 3, 4], [5, 5, 7, 9]]
    train = read(tmp_path, "train")
    assert (train.classes, train.labels.tolist(), train.boxes) == (data.classes, [0], None)


@MODES
def test_voc(tmp_path, mode):
    root = files.voc(tmp_path)
    data = read(root, "train", on_error=mode)
    assert data.classes == ("bed", "sofa", "trash can", "trashcan")  # sofa only occurs in val
    assert data.ids == tuple(f"JPEGImages/{stem}.jpg" for stem in "cabd")
    assert data.labels.tolist() == [2, 0, 2, -1]  # largest box; the first of equals; none
    assert data.boxes.counts.tolist() == [2, 2, 3, 0]
    assert data.boxes.labels.tolist() == [0, 2, 3, 0, 2, 3, 3]
    assert corners(data, 0) == [[3, 3, 3, 8], [15, 5, 25, 9]]
    assert corners(data, 1) == [[1, 1, 5, 5], [2, 2, 12.5, 9]]
    assert odd(data.report) == {
        "class name that differs from another only by case, spaces, '-' or '_'": 1,
        "class with a single box": 1,
        "box without area": 1,
        "box that leaves the image": 1,
        "image without objects": 1,
    }
    assert "'trash can' (2) beside 'trashcan' (3)" in str(data.report)
    assert "'sofa' in Annotations/e.xml" in str(data.report)
    assert {data[i].input.mode for i in range(4)} == {"RGB"}
    assert read(root, "val", on_error=mode).labels.tolist() == [1]
    with pytest.raises(ValueError, match="split 'bed_train' was asked for, and voc has train, val"):
        read(root, "bed_train")


def test_voc_classes_and_rename(tmp_path):
    root = files.voc(tmp_path)
    data = read(root, "train", rename={"trash can": "trashcan", "bed": ""})
    assert data.classes == ("sofa", "trashcan")
    assert data.boxes.labels.tolist() == [1, 1, 1, 1, 1]
    assert "class name that differs from another only by case, spaces, '-' or '_'" not in odd(data.report)
    data = read(root, "train", classes=["trashcan"])
    assert data.labels.tolist() == [-1, 0, 0, -1]
    assert data.boxes.labels.tolist() == [-1, -1, 0, -1, -1, 0, 0]
    assert odd(data.report)["box of a class that was not asked for"] == 4
    data = read(root, "train", rename={"trash can": "", "trashcan": ""}, on_error="skip")
    assert data.ids == tuple(f"JPEGImages/{stem}.jpg" for stem in "cad")
    assert skipped(data.report) == {"image without an object of the classes asked for": 1}
    with pytest.raises(ValueError, match="'trahs can' was to be renamed"):
        read(root, "train", rename={"trahs can": "trashcan"})
    with pytest.raises(ValueError, match="the option classes must be a list of texts, got"):
        read(root, "train", classes="bed")


def test_voc_files_in_one_folder(tmp_path):
    image(tmp_path / "a.png", (30, 10))
    write(tmp_path / "a.xml", xml([("dog", 0, 0, 25, 5)], "elsewhere.jpg", size=None))
    image(tmp_path / "b.jpg")
    write(tmp_path / "b.xml", xml([("cat", 0, 0, 25, 5)], "b.jpg", size=(30, 10)))
    data = read(tmp_path)
    assert (data.name, data.split, data.ids) == (tmp_path.name, "all", ("a.png", "b.jpg"))
    assert (data.classes, data.labels.tolist()) == (("cat", "dog"), [1, 0])
    assert odd(data.report) == {
        "class with a single box": 2,
        "file name in the annotation that is not there: the image beside it is used": 1,
        "size in the annotation that is not the image's": 1,
    }
    # With every header read, the second image turns out smaller than its annotation says.
    found = odd(read(tmp_path, on_error="skip").report)
    assert found["size in the annotation that is not the image's"] == 2
    assert found["box that leaves the image"] == 1


@pytest.mark.parametrize("says", ["folder name", "<folder>", "all names", "other name", "nothing"])
def test_voc_s_own_classes_only_where_the_set_says_that_it_is_voc(tmp_path, says):
    root = tmp_path / ("VOC2012" if says == "folder name" else "mine")
    names = VOC if says == "all names" else ("dog", "zebra" if says == "other name" else "cat")
    image(root / "a.jpg")
    text = xml([(name, 0, 0, 9 + (name == "dog"), 5) for name in names], "a.jpg")
    if says in ("<folder>", "other name"):
        text = text.replace("<filename>", "<folder>VOC2007</folder><filename>")
    write(root / "a.xml", text)
    data = read(root)
    expected = {"nothing": ("cat", "dog"), "other name": ("dog", "zebra")}.get(says, VOC)
    assert (data.classes, data.name) == (expected, root.name)
    assert data.classes[data.labels[0]] == "dog"


@MODES
def test_coco(tmp_path, mode):
    data = read(files.coco(tmp_path), on_error=mode)
    assert (data.split, data.classes) == ("val2017", ("car", "bus", "toothbrush"))
    assert data.ids == ("val2017/x.jpg", "val2017/y.jpg", "val2017/z.jpg")
    assert data.labels.tolist() == [0, 2, -1]  # the largest box of x is a crowd
    assert corners(data, 0) == [[1, 2, 4.5, 6], [0, 0, 20, 10], [0, 0, 2, 2]]
    assert corners(data, 1) == [[15, 5, 25, 5]]
    assert data.boxes.labels.tolist() == [0, 2, 2, 2]
    assert data.boxes.crowd.tolist() == [False, True, False, False]
    assert odd(data.report) == {"box without area": 1, "box that leaves the image": 1, "image without objects": 1}
    data = read(tmp_path, classes=["car"], rename={"bus": "car"})
    assert (data.labels.tolist(), data.boxes.labels.tolist()) == ([0, -1, -1], [0, -1, -1, -1])
    data = read(tmp_path, rename={"toothbrush": ""})
    assert (data.classes, data.ids) == (("car", "bus"), ("val2017/x.jpg", "val2017/z.jpg"))


@MODES
def test_open_images(tmp_path, mode):
    data = read(files.open_images(tmp_path), on_error=mode)
    assert data.classes == ("Cat", "Woman", "Man")
    assert data.ids == ("train/i1.jpg", "train/i2.jpg", "train/i4.jpg")
    assert data.labels.tolist() == [0, 2, 1]  # the cats of i2 are a group
    np.testing.assert_allclose(corners(data, 0), [[10, 0, 20, 5]])
    np.testing.assert_allclose(corners(data, 1), [[10, 2, 20, 12], [0, 0, 40, 20]])
    assert data.boxes.crowd.tolist() == [False, False, True, False]
    assert skipped(data.report) == {
        "box of a class above others, or of a dropped class": 2,
        "box of an image that is not there": 1,
        "image without a box of the classes asked for": 2,
    }
    assert odd(data.report) == {"box without area": 1}


def test_open_images_options(tmp_path):
    root = files.open_images(tmp_path)
    data = read(root, leaf_only=False, merge={"Man": "Person", "Woman": "Person"})
    assert (data.classes, data.labels.tolist()) == (("Cat", "Person"), [1, 1, 1, 1])
    capped = read(root, leaf_only=False, merge={"Man": "Person", "Woman": "Person"}, cap=3)
    assert len(capped) == 3
    assert skipped(capped.report)["image beyond the cap of its class"] == 1
    assert list(capped.ids) == [name for name in data.ids if name in capped.ids]
    chosen = {
        read(root, leaf_only=False, merge={"Man": "Person", "Woman": "Person"}, cap=1, seed=s).ids for s in range(9)
    }
    assert len(chosen) > 1
    # A smaller set of images keeps those of the choice that are still there.
    (root / next(name for name in data.ids if name not in capped.ids)).unlink()
    assert read(root, leaf_only=False, merge={"Man": "Person", "Woman": "Person"}, cap=3).ids == capped.ids
    with pytest.raises(ValueError, match="cap must be a whole number of at least 1, got 0"):
        read(root, cap=0)
    (root / "bbox_labels_600_hierarchy.json").unlink()
    with pytest.raises(ValueError, match=r"leaf_only needs bbox_labels_600_hierarchy\.json"):
        read(root)


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


def test_broken_images_are_found_when_opened_or_when_decoded(tmp_path):
    root = files.cub(tmp_path)
    image(root / "images/001.Black_Bird/a.jpg", (200, 200))
    cut(root / "images/001.Black_Bird/a.jpg")
    write(root / "images/002.Red_Bird/c.jpg", b"")
    data = read(root, "test")
    for i in range(2):
        with pytest.raises(UnreadableError, match=r"(a|c).jpg: the image is truncated or broken"):
            data[i]
    write(root / "train_test_split.txt", "1 0\n2 0\n3 0\n")
    data = read(root, "test", on_error="skip")
    assert data.ids == ("images/002.Red_Bird/b.jpg",)
    assert skipped(data.report) == {"image that cannot be read": 2}


def test_check_image(tmp_path):
    for name, mode in (("a.jpg", "RGB"), ("b.png", "L"), ("c.jpg", "CMYK")):
        path = image(tmp_path / name, (40, 30), mode)
        assert check_image(path).size == (40, 30)
        path.write_bytes(path.read_bytes() + bytes(3000))  # cameras append data; the image is whole
        assert check_image(path).size == (40, 30)
        with pytest.raises(UnreadableError, match="at most 1000 are read"):
            check_image(path, 1000)
    for name in ("d.jpg", "e.png"):
        path = tmp_path / name
        pixels = np.random.default_rng(0).integers(0, 256, (60, 60, 3), dtype=np.uint8)
        files.Image.fromarray(pixels).save(path)
        cut(path, 0.8)
        with pytest.raises(UnreadableError, match=f"{name}: the image is truncated or broken"):
            check_image(path)
    with pytest.raises(UnreadableError, match="truncated or broken"):
        check_image(write(tmp_path / "f.jpg", b""))
    with pytest.raises(FileNotFoundError):
        check_image(tmp_path / "gone.jpg")


@pytest.mark.parametrize(
    "value", ["", "x", "nan", "inf", "1e400", "1_000", "1,5", None, True, [1], float("nan"), 10**400]
)
def test_what_is_not_a_number(value):
    with pytest.raises(ValueError, match="is not a number that a coordinate can be"):
        number(value)


def test_numbers():
    assert [number(v) for v in (" 12 ", "-3.5", "1e2", ".5", 7, 2.25)] == [12, -3.5, 100, 0.5, 7, 2.25]
