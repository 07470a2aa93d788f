"""Which image belongs to which annotation, and what becomes of those that have none; expected values by hand."""

import pytest

from calibrant.data import read
from tests import box_files as files
from tests.box_files import image, odd, skipped, write, xml

NO_ANNOTATION = "image without an annotation"
ONE_STEM = "images of one stem, of which one is used"
OTHER_IMAGE = "file name in the annotation is another image's: the one of its own name is used"


def where(findings):
    return {what: places for what, _, places in findings}


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
    with pytest.raises(ValueError, match=r"^ImageSets/Main/val\.txt, 'v\.jpg': listed image without an annotation\.?$"):
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
    assert where(data.report.skipped) == {"image that is listed twice": ("ImageSets/Main/train.txt, 'x y'",)}


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
    with pytest.raises(ValueError, match=r"^Annotations/sub/a\.xml: image that is listed twice .* of its own"):
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


def test_coco_images_that_the_file_does_not_list(tmp_path):
    root = files.coco(tmp_path)
    image(root / "val2017/u.jpg")
    assert where(read(root).report.skipped) == {NO_ANNOTATION: ("val2017/u.jpg",)}
    # A folder of several splits: the image may be another's.
    (root / "val2017").rename(root / "images")
    write(root / "annotations/instances_train2017.json", "{}")
    assert skipped(read(root, "val2017").report) == {}


def test_cub_images_that_no_line_lists(tmp_path):
    root = files.cub(tmp_path)
    image(root / "images/002.Red_Bird/u.jpg")
    for split in ("train", "test"):
        assert where(read(root, split).report.skipped) == {NO_ANNOTATION: ("images/002.Red_Bird/u.jpg",)}


def test_places_in_coco_name_the_image(tmp_path):
    content = files.coco_content()
    content["annotations"][1]["category_id"] = 5
    content["annotations"][0]["id"] = content["annotations"][3]["id"]
    data = read(files.coco(tmp_path, content), on_error="skip")
    (place,) = where(data.report.skipped)["annotation of a category that is not listed"]
    assert place == "val2017/x.jpg (5, annotation 1 in annotations/instances_val2017.json)"
    assert where(data.report.odd)["annotation with the id of another"] == ("val2017/x.jpg",)
    assert len(data.boxes[0]) == 2  # both are kept


def test_images_that_show_only_crowds(tmp_path):
    content = files.coco_content()
    content["annotations"][2]["iscrowd"] = 1
    data = read(files.coco(tmp_path, content))
    assert data.labels.tolist() == [0, -1, -1]
    assert where(data.report.odd)["image that shows only crowds"] == ("val2017/y.jpg",)
    assert "image without a single object of a class asked for" not in odd(data.report)


def test_names_from_files_can_be_printed(tmp_path):
    content = files.coco_content()
    content["images"][1]["file_name"] = "y\n\x1b[2J.jpg"
    with pytest.raises(ValueError, match="image that is missing") as error:
        read(files.coco(tmp_path / "coco", content))
    assert str(error.value).isprintable()
    root = files.voc(tmp_path / "voc")
    image(root / "JPEGImages/x\n\x1b[2J.jpg")
    write(root / "Annotations/x\n\x1b[2J.xml", xml([]))
    for name in ("train", "val", "bed_train"):
        (root / f"ImageSets/Main/{name}.txt").unlink()
    data = read(root)
    assert "JPEGImages/x\n\x1b[2J.jpg" in data.ids
    assert where(data.report.odd)["image without objects"] == ("JPEGImages/d.jpg", r"JPEGImages/x\n\x1b[2J.jpg")


def test_a_split_without_anything_to_use_says_why(tmp_path):
    root = files.voc(tmp_path / "voc")
    for stem in "abc":
        write(root / f"Annotations/{stem}.xml", xml([("bed", 9, 1, 2, 2)], f"{stem}.jpg"))
    (root / "JPEGImages/d.jpg").unlink()
    reasons = r"inverted box \(3\), image that is missing \(1\)$"
    with pytest.raises(ValueError, match=r"the split 'train' holds no image that can be used: " + reasons):
        read(root, "train", on_error="skip")


# ImageNet's flat val with the development kit


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
    assert skipped(data.report) == {"image without a label": 1}
    with pytest.raises(ValueError, match=r"ground_truth\.txt: line 2 is '7', which is no number in map_clsloc\.txt"):
        read(kit(tmp_path / "c", "2\n7\n1\n"), "val")
    with pytest.raises(ValueError, match=r"ground_truth\.txt: .* there is no map_clsloc\.txt"):
        read(kit(tmp_path / "d", "2\n1\n1\n", mapping=""), "val")
    image(tmp_path / "d/train/n00000003/1.JPEG")
    assert read(tmp_path / "d", "train").classes == ("n00000003",)  # the labels of val are not needed
    image(tmp_path / "d/val/n00000003/1.JPEG")
    for i in (1, 2, 3):
        (tmp_path / f"d/val/ILSVRC2012_val_{i:08d}.JPEG").unlink()
    assert read(tmp_path / "d", "val").labels.tolist() == [0]  # nor here
