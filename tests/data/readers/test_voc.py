"""PASCAL VOC: which image an annotation belongs to, classes, lists, masks."""

import numpy as np
import pytest
from scipy.io import savemat

from calibrant.data import layouts, read
from calibrant.data.readers._folder import TWICE
from calibrant.data.readers.voc import voc_segmentation
from tests.helpers import box_files as files
from tests.helpers.box_files import image, odd, skipped, write, xml
from tests.helpers.errors import facts
from tests.helpers.reader_data import MODES, NO_ANNOTATION, OUT, corners, mask, picture, where

# fmt: off
VOC = (
    "aeroplane", "bicycle", "bird", "boat", "bottle", "bus", "car", "cat", "chair", "cow", "diningtable", "dog",
    "horse", "motorbike", "person", "pottedplant", "sheep", "sofa", "train", "tvmonitor",
)


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
    with pytest.raises(ValueError, match=facts("bed_train")):
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
    with pytest.raises(ValueError, match=facts("trahs can")):
        read(root, "train", rename={"trahs can": "trashcan"})
    with pytest.raises(ValueError, match=facts("classes", "bed")):
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
        "annotation that names a missing image: the image beside it is used": 1,
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




def test_a_guessed_encoding_is_odd(tmp_path):
    tiny = files.tiny_imagenet(tmp_path / "tiny")
    write(tiny / "words.txt", "n01\tGrünspecht\n", "latin-1")
    assert read(tiny, "val").classes == ("n02", "Grünspecht", "n03")
    root = files.voc(tmp_path / "voc")
    write(root / "Annotations/a.xml", xml([("Stühle", 1, 1, 2, 2)], "a.jpg"), "latin-1")
    assert odd(read(root, "train").report)["annotation that is not UTF-8, read as latin-1"] == 1


def test_voc_masks_are_palette_indices(tmp_path):
    root = tmp_path / "VOCdevkit" / "VOC2012"
    lists = root / "ImageSets" / "Segmentation"
    lists.mkdir(parents=True)
    for stem in ("2007_000032", "2007_000039", "2008_000003"):
        picture(root / "JPEGImages" / f"{stem}.jpg", size=(3, 2))
    mask(root / "SegmentationClass" / "2007_000032.png", [[0, 20, 255], [15, 0, 0]], mode="P")
    mask(root / "SegmentationClass" / "2007_000039.png", [[0, 21, 255], [15, 0, 0]], mode="P")
    mask(root / "SegmentationClassAug" / "2008_000003.png", [[1, 2, 3], [4, 5, 6]])
    (lists / "train.txt").write_text("2007_000032\n")
    (lists / "val.txt").write_text("2007_000039\n2008_000003\n../../../etc/passwd\n")
    (lists / "train_aug.txt").write_text("/JPEGImages/2008_000003.jpg /SegmentationClassAug/2008_000003.png\n")
    assert layouts()["voc-segmentation"].splits(root) == ("train", "val", "train_aug")
    data = voc_segmentation(root, "train")
    assert (data.ids, len(data.classes), data.ignore_index) == (("JPEGImages/2007_000032.jpg",), 21, 255)
    assert np.asarray(data[0].mask).tolist() == [[0, 20, 255], [15, 0, 0]]
    assert np.asarray(voc_segmentation(root, "train_aug")[0].mask).tolist() == [[1, 2, 3], [4, 5, 6]]
    with pytest.raises(ValueError, match=facts("val", "(1)")):
        voc_segmentation(root, "val", on_error="skip")


def test_xml_files_that_are_links(tmp_path):
    root = files.voc(tmp_path / "data")
    (root / "Annotations/a.xml").rename(tmp_path / "secret.xml")
    (root / "Annotations/a.xml").symlink_to(tmp_path / "secret.xml")
    with pytest.raises(ValueError, match=facts("Annotations/a.xml")):
        read(root, "train")
    data = read(root, "train", on_error="skip")
    assert data.ids == tuple(f"JPEGImages/{name}.jpg" for name in "cbd")
    assert skipped(data.report) == {OUT: 1, "listed image without an annotation": 1}


ONE_STEM = "images of one stem, of which one is used"


OTHER_IMAGE = "annotation that names another image: the image of its own name is used"


def test_an_annotation_belongs_to_the_image_of_its_own_name(tmp_path):
    root = files.voc(tmp_path)
    write(root / "Annotations/a.xml", xml([("bed", 1, 1, 2, 2)], "e.jpg"))
    data = read(root, "train")
    assert data.ids == tuple(f"JPEGImages/{stem}.jpg" for stem in "cabd")
    assert data.boxes[1].tolist() == [[1, 1, 2, 2]]
    assert where(data.report.odd)[OTHER_IMAGE] == ("Annotations/a.xml",)
    (root / "JPEGImages/a.jpg").rename(root / "JPEGImages/z.jpg")
    write(root / "Annotations/a.xml", xml([("bed", 1, 1, 2, 2)], "z.jpg"))
    data = read(root, "train")
    assert data.ids[1] == "JPEGImages/z.jpg"  # there is none of its own name
    assert NO_ANNOTATION not in skipped(data.report)


def test_voc_images_without_an_annotation(tmp_path):
    root = files.voc(tmp_path)
    for name in ("u", "v", "sub/w"):
        image(root / f"JPEGImages/{name}.jpg")
    write(root / "ImageSets/Main/val.txt", "e\nv.jpg\n")
    # In no list: reported in every split. In a list: that split's business alone.
    assert where(read(root, "train").report.skipped) == {NO_ANNOTATION: ("JPEGImages/sub/w.jpg", "JPEGImages/u.jpg")}
    with pytest.raises(ValueError, match=facts("ImageSets/Main/val.txt", "v.jpg")):
        read(root, "val")
    assert where(read(root, "val", on_error="skip").report.skipped) == {
        "listed image without an annotation": ("ImageSets/Main/val.txt, 'v.jpg'",),
        NO_ANNOTATION: ("JPEGImages/sub/w.jpg", "JPEGImages/u.jpg"),
    }
    for name in ("train", "val", "bed_train"):
        (root / f"ImageSets/Main/{name}.txt").unlink()
    data = read(root, "all")
    assert len(data) == 5
    assert skipped(data.report) == {NO_ANNOTATION: 3}


def test_lists_with_suffixes_and_second_columns(tmp_path):
    root = files.voc(tmp_path)
    image(root / "JPEGImages/x y.jpg")
    write(root / "Annotations/x y.xml", xml([("bed", 1, 1, 2, 2)], "x y.jpg"))
    write(root / "ImageSets/Main/train.txt", "c.jpg\na.JPG 1\nb  -1\nx y\n\nx y.jpg\n")
    data = read(root, "train", on_error="skip")
    assert data.ids == tuple(f"JPEGImages/{stem}.jpg" for stem in ("c", "a", "b", "x y"))
    assert where(data.report.skipped) == {TWICE: ("ImageSets/Main/train.txt, 'x y'",)}


def test_annotations_in_folders(tmp_path):
    root = files.voc(tmp_path)
    image(root / "JPEGImages/sub/a.jpg")
    write(root / "Annotations/sub/a.xml", xml([("sofa", 1, 1, 3, 3)], "a.jpg"))
    write(root / "ImageSets/Main/val.txt", "e\nsub/a\n")
    data = read(root, "val")
    assert (data.ids, data.labels.tolist()) == (("JPEGImages/e.jpg", "JPEGImages/sub/a.jpg"), [1, 1])
    assert OTHER_IMAGE not in odd(data.report)
    assert data.boxes.corners.tolist() == [[1, 1, 2, 2], [1, 1, 3, 3]]
    (root / "JPEGImages/sub/a.jpg").unlink()
    with pytest.raises(ValueError, match=facts("Annotations/sub/a.xml")):
        read(root, "val")
    for path in (root / "Annotations").glob("*.xml"):
        path.rename(root / "Annotations/sub" / path.name)
    assert read(root, "val", layout="voc", on_error="skip").split == "val"  # all annotations are a folder down


def test_two_images_of_one_stem(tmp_path):
    root = files.voc(tmp_path / "voc")
    image(root / "JPEGImages/a.png")
    for filename, used in (("a.png", "a.png"), ("a.jpg", "a.jpg"), ("", "a.jpg")):
        write(root / "Annotations/a.xml", xml([("bed", 1, 1, 2, 2)], filename))
        data = read(root, "train")
        assert data.ids[1] == f"JPEGImages/{used}"
        assert where(data.report.odd)[ONE_STEM] == ("JPEGImages/a.jpg, JPEGImages/a.png",)
        assert data.report.skipped == ()
    root = files.open_images(tmp_path / "open")
    image(root / "train/sub/i1.jpg")
    image(root / "train/sub/i9.jpg")
    write(root / "class-descriptions-boxable.csv", "/m/cat,Cat\n/m/person,Person\n/m/woman,Woman\n/m/man,Man\n")
    data = read(root)
    assert data.ids == ("train/i1.jpg", "train/i2.jpg", "train/i4.jpg")
    assert where(data.report.odd)[ONE_STEM] == ("train/i1.jpg, train/sub/i1.jpg",)




def test_a_split_without_anything_to_use_says_why(tmp_path):
    root = files.voc(tmp_path / "voc")
    for stem in "abc":
        write(root / f"Annotations/{stem}.xml", xml([("bed", 9, 1, 2, 2)], f"{stem}.jpg"))
    (root / "JPEGImages/d.jpg").unlink()
    with pytest.raises(ValueError, match=facts("train", "inverted box (3)", "(1)")):
        read(root, "train", on_error="skip")


LISTS = "ImageSets/Segmentation"


def mat(path, labels):
    path.parent.mkdir(parents=True, exist_ok=True)
    savemat(path, {"GTcls": {"Segmentation": np.array(labels, np.uint8), "Boundaries": np.zeros((2, 3))}})


@pytest.fixture
def root(tmp_path):
    """Own training images a and b, validation c; SBD has b (also VOC's), c (left out), d and e."""
    home = tmp_path / "VOC2012"
    for stem in "abcde":
        picture(home / "JPEGImages" / f"{stem}.jpg", size=(3, 2))
    for stem in "abc":
        mask(home / "SegmentationClass" / f"{stem}.png", [[0, 1, 255], [15, 0, 0]], mode="P")
    (home / LISTS).mkdir(parents=True)
    (home / LISTS / "train.txt").write_text("a\nb\n")
    (home / LISTS / "val.txt").write_text("c\n")
    return home


def with_sbd(root, name="SBD"):
    for k, stem in enumerate("bcde"):
        mat(root / name / "cls" / f"{stem}.mat", [[k, 2, 3], [4, 5, 20]])
    (root / name / "train.txt").write_text("b\nd\n")
    (root / name / "val.txt").write_text("c\ne\n")


@pytest.mark.parametrize("name", ["SBD", "benchmark_RELEASE/dataset"])
def test_the_list_follows_from_the_lists_of_both(root, name):
    with_sbd(root, name)
    data = read(root, "train_aug", layout="voc-segmentation")
    assert data.ids == tuple(f"JPEGImages/{stem}.jpg" for stem in "abde")
    labels = [np.asarray(data[k].mask).tolist() for k in range(4)]
    own = [[0, 1, 255], [15, 0, 0]]
    assert labels == [own, own, [[2, 2, 3], [4, 5, 20]], [[3, 2, 3], [4, 5, 20]]]  # b has VOC's own mask
    assert np.asarray(data.take(np.array([3]))[0].mask).tolist() == labels[3]


def test_a_list_of_the_user_comes_first(root):
    with_sbd(root)
    (root / "SegmentationClassAug").mkdir()
    (root / LISTS / "train_aug.txt").write_text("e\na\n")
    data = read(root, "train_aug", layout="voc-segmentation")
    assert data.ids == ("JPEGImages/e.jpg", "JPEGImages/a.jpg")
    assert np.asarray(data[0].mask).tolist() == [[3, 2, 3], [4, 5, 20]]


def test_without_sbd_it_is_said_what_is_needed(root):
    with pytest.raises(ValueError, match=facts("train_aug", "SBD")):
        read(root, "train_aug", layout="voc-segmentation")


def test_files_that_are_no_masks_are_said_in_a_sentence(root):
    with_sbd(root)
    (root / "SBD/cls/d.mat").write_bytes(b"MATLAB 5.0 MAT-file, cut")
    savemat(root / "SBD/cls/e.mat", {"GTcls": {"Segmentation": np.zeros((2, 3))}})
    data = read(root, "train_aug", layout="voc-segmentation")
    with pytest.raises(ValueError, match=facts("SBD")):
        data.masks[2]
    with pytest.raises(ValueError, match=facts("GTcls", "8")):
        data.masks[3]
