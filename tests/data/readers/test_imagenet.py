"""ImageNet and Tiny ImageNet: classes by wnid, boxes, flat validation images."""

import shutil

import pytest

from calibrant.data import read, recognise
from calibrant.data.readers._folder import HIDDEN, MISSING, NO_LABEL
from tests.helpers import box_files as files
from tests.helpers.box_files import image, odd, skipped, write, xml
from tests.helpers.errors import facts
from tests.helpers.reader_data import INVERTED, MODES, NO_ANNOTATION, NO_NUMBERS, corners, one_sentence


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
    with pytest.raises(ValueError, match=r"val_3\.JPEG") as error:
        read(root, "val")
    one_sentence(error, "val/images/val_3.JPEG", what, "val_annotations.txt")
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
